"""The schedule of the learning rate as a technique."""

import dataclasses

from samestep.common.errors import ConfigError
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.schedule.flag import ScheduleFlags
from samestep.common.techniques.technique import Technique


def fill_in_decay(run: Run) -> Techniques:
    """Fills in where a decay ends; refuses a warm-up that leaves no step for the decay, and `--decay-steps` without a decay."""
    given, schedule = run.techniques, run.techniques.learning_rate_schedule
    if schedule == "constant":
        if given.decay_steps is not None:
            raise ConfigError(
                f"--decay-steps {given.decay_steps} ends a decay, and the learning rate is constant; add "
                "--learning-rate-schedule cosine, or leave it out."
            )
        return given
    end = given.decay_steps or run.steps
    if given.warmup_steps >= end:
        raise ConfigError(
            f"--warmup-steps {given.warmup_steps} leaves none of {end} steps to the {schedule} decay; give at most {end - 1}."
        )
    return dataclasses.replace(given, decay_steps=end)


def note_steps_without_rate(run: Run) -> str:
    """Returns a note on the steps that train nothing because the decay has ended before them; "" if there are none."""
    end, last = run.techniques.decay_steps, run.steps
    if end is None or end >= last:
        return ""
    which = f"from step {end + 1} on" if end + 1 < last else f"in step {last}"
    return f"--decay-steps {end}: the learning rate is 0 {which}, where nothing is trained; give {last} to train in all steps."


SCHEDULE = Technique(flags=ScheduleFlags, note=note_steps_without_rate, fill_in=fill_in_decay)

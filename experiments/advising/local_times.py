"""The seconds of a run on this machine, from what calibration measured."""

from samestep.common.seconds.core_time import Taken, core_time
from samestep.common.seconds.step_time import StepTime
from samestep.common.strategy import Run
from samestep.common.workload.pipeline_schedule import SCHEDULES, group_segments
from samestep.experiments.advising.local_machine import Here


def seconds_here(run: Run, here: Here) -> StepTime:
    """Predicts the parts of a step on this machine.

    Args:
        run: What is timed.
        here: What was measured.
    """
    return core_time(run, run.strategy.backend, Taken.by(run), here.machine, here.cores)


def passes(run: Run) -> float:
    """Returns the segments and micro-batches that go through a rank in a step, bubble included: what overhead is counted by."""
    how, pipe = Taken.by(run), run.mesh.pipe
    schedule = SCHEDULES[how.schedule]
    largest = max(map(len, group_segments(run.workload.model.segments(), pipe * schedule.stages_per_rank)))
    return largest * (how.microbatches(run) * schedule.stages_per_rank + pipe - 1)

"""Repeats steps to judge a run that left its reference, or whose bounds are too wide to show whether it did."""

import dataclasses
import functools

from samestep.common.judging.attribution import attribute, find_other_step
from samestep.common.judging.parity import Attribution, Parity
from samestep.common.judging.ported import is_right_but_for_port, judge_with_port
from samestep.common.judging.reference_run import Rerun
from samestep.common.judging.rounding import excuse, load_diagnosis, replay_to
from samestep.common.judging.verdict import Trial
from samestep.common.program import TrainState
from samestep.common.strategy import Run


def judge_again(trial: Trial, parity: Parity, rerun: Rerun) -> Parity:
    """Judges a run that is off: passes it if rounding or the model's port explains that, and otherwise looks for the cause.

    Args:
        trial: The run.
        parity: The verdict on its curve, which is off.
        rerun: Repeats steps of the run.
    """
    start = trial.start()
    parity = excuse(trial.run, parity, trial.taken.wanted, start, rerun, trial.alone)
    if parity.passed:
        return parity
    find_cause = functools.partial(_find_cause, trial, parity, start, rerun)
    return judge_with_port(trial.run, parity, trial.taken, rerun, trial.ask, find_cause)


def _find_cause(trial: Trial, parity: Parity, start: TrainState, rerun: Rerun) -> Attribution:
    """Finds why a run did not take the same steps: by the suspects of a user's model, or by the known mistakes for our models."""
    run = trial.run
    if not trial.has_oracle:
        parity = _name_sums(run, parity)
        return attribute(run, trial.seen.log.first, parity, rerun)
    bad = run.steps - 1 if parity.first_bad_step is None else parity.first_bad_step
    cause = load_diagnosis().diagnose(run, start.step, bad, start, functools.partial(replay_to, run, rerun))
    return Attribution(f"{cause} ({parity.reason})")


def _name_sums(run: Run, parity: Parity) -> Parity:
    """Begins the reason of a run on shards with the layers that add to the loss something other than a mean over examples."""
    sums = run.workload.model.facts.sums
    if not sums or run.mesh.replicas * run.microbatches == 1:
        return parity
    count, names = len(sums), ", ".join(sums)
    layers = f"{count} layer{'s' if count > 1 else ''} ({names})"
    said = f"not the same function on shards: what {layers} put into the loss by add_loss is not a mean over examples"
    return dataclasses.replace(parity, reason=f"{said}: {parity.reason}")


def find_step_unseen(trial: Trial, parity: Parity, rerun: Rerun) -> Attribution | None:
    """Returns why a run in two bytes does not take the reference's steps though it is within its own bounds; None if it does.

    Args:
        trial: The run of a user's model.
        parity: The verdict on its curve.
        rerun: Repeats steps of the run.
    """
    run, first = trial.run, trial.seen.log.first
    missed = find_other_step(run, first, parity, rerun)
    return None if missed and is_right_but_for_port(run, first, trial.taken.noise, rerun, trial.ask) else missed

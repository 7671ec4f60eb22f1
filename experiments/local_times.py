"""The seconds of a run on this machine, from what calibration measured."""

from samestep.common.evidence.costs.core_time import Taken, core_time
from samestep.common.evidence.costs.step_time import StepTime
from samestep.common.strategy import Run
from samestep.common.workload.pipeline import SCHEDULES, group_segments
from samestep.experiments.candidates import is_staged
from samestep.experiments.here import Here


def taken(run: Run, recomputes: bool = False) -> Taken:
    """Reads off a run how it takes its batch.

    Args:
        run: A run.
        recomputes: Whether it computes activations again.
    """
    rows = run.batch_size // (run.mesh.axis("data") * run.mesh.axis("shard") * run.accumulation_steps)
    if is_staged(run):
        return Taken(rows // run.options.microbatches, run.options.schedule, recomputes)
    return Taken(rows, recomputes=recomputes)


def seconds_here(run: Run, here: Here, recomputes: bool = False) -> StepTime:
    """Predicts the parts of a step on this machine.

    Args:
        run: What is timed.
        here: What was measured.
        recomputes: Whether it computes activations again.
    """
    ledger = run.strategy.cost(run, run.strategy.backend)
    return core_time(run, ledger, taken(run, recomputes), here.machine, here.cores)


def passes(run: Run) -> float:
    """The segments and micro-batches that go through a rank in a step, bubble included: what overhead is counted by."""
    how, pipe = taken(run), run.mesh.axis("pipe")
    schedule = SCHEDULES[how.schedule]
    largest = max(map(len, group_segments(run.workload.model.segments(), pipe * schedule.stages_per_rank)))
    replicas = run.mesh.axis("data") * run.mesh.axis("shard")
    microbatches = run.batch_size / (replicas * how.microbatch_size)
    return largest * (microbatches * schedule.stages_per_rank + pipe - 1)

"""The axis `pipe`: the model is split between its layers; micro-batches follow each other through the stages.

References:
    Narayanan et al., arXiv 2104.04473, sections 2.2 (the bubble) and 3.2: every rank along `tensor` hands activations on.
"""

from samestep.common.axes.axis import AxisHooks, Idle, Sizes, Term
from samestep.common.strategy import Run
from samestep.common.workload.pipeline_schedule import SCHEDULES


def sent(run: Run, sizes: Sizes) -> float:
    """Returns the bytes of the activations at all boundaries, and of their gradients.

    Args:
        run: What is trained.
        sizes: The sizes in which the term is expressed.
    """
    return 2 * (run.mesh.pipe - 1) * run.mesh.parts("features") * sizes.handed_on


def idle(run: Run) -> Idle:
    """Returns the share of a step in which a rank waits for the first or the last micro-batches."""
    ranks, name = run.mesh.pipe, run.asked.schedule
    stages, count = (SCHEDULES[name].stages_per_rank, run.asked.microbatches) if name else (1, 1)
    return Idle("(p - 1) / (v m + p - 1)", (ranks - 1) / (stages * count + ranks - 1))


def turns(run: Run) -> int | None:
    """Returns the number of micro-batches under 1F1B, whose first rank has p of them in flight and holds 1/p of the blocks."""
    return run.asked.microbatches if run.asked.schedule == "1f1b" else None


HOOKS = AxisHooks(
    textbook=lambda run: Term("2 (p - 1) t a w", sent),
    idle=idle,
    turns=turns,
    most=lambda model, mesh: len(model.segments()),
)

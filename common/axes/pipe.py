"""The axis `pipe`: the model is split between its layers; micro-batches follow each other through the stages.

References:
    Narayanan et al., arXiv 2104.04473, section 3.2: every rank along `tensor` hands activations on.
"""

from samestep.common.axes.axis import AxisHooks, Sizes, Term
from samestep.common.strategy import Run


def sent(run: Run, sizes: Sizes) -> float:
    """Returns the bytes of activations at each boundary, and of their gradients.

    Args:
        run: What is trained.
        sizes: What the term counts in.
    """
    return 2 * (run.mesh.pipe - 1) * run.mesh.parts("features") * sizes.handed_on


HOOKS = AxisHooks(textbook=lambda run: Term("2 (p - 1) t a w", sent))

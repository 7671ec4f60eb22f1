"""The axis `data`: every device has the whole model, or the same part of it, and takes other examples.

Gradients are all-reduced once a step.

References:
    Narayanan et al., arXiv 2104.04473, section 3.2.
"""

from samestep.common.axes.axis import AxisHooks, Sizes, Term
from samestep.common.strategy import Run


def sent(run: Run, sizes: Sizes) -> float:
    """Returns the bytes of a ring that adds up all gradients.

    Args:
        run: What is trained.
        sizes: What the term counts in.
    """
    return 2 * (run.mesh.data - 1) * sizes.params


HOOKS = AxisHooks(textbook=lambda run: Term("2 (d - 1) w Ψ", sent))

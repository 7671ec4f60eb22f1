"""How far rounding alone may move a step, and a run."""

import math

from samestep.common.features.used import keeps_buffers
from samestep.common.request import UNIT_ROUNDOFF
from samestep.common.strategy import Run
from samestep.common.techniques.used import gradient_error

EXPLAINED = 1000
"""The most roundings of a weight's size that may add up in a step; a mistake that matters is far larger."""
SPREAD = 3
"""The factor by which a single step, or one parameter, may exceed the usual bound."""
NOISE = {"float64": 1e-11, "float32": 1e-3}
"""How far rounding may move a gradient, or the optimizer state in one step, relative to its length."""
MOVE_NOISE = {"float64": 1e-9, "float32": 5e-3}
"""The same for the change of the weights, in which Adam's division of small gradients amplifies rounding."""

RESIDUAL_NOISE = {"float64": 1e-8, "float32": 0.1}
"""The same for what compression leaves out."""


def noise_of(run: Run) -> tuple[float, float]:
    """Returns how far rounding may move a gradient, and the change of the weights, relative to their norms.

    In Adam's first step every weight moves by the learning rate, in the direction of its gradient's sign. If gradients are off by
    a share e, about e / 2 of them are small enough to change sign, and the move of these is off by twice its size: by sqrt(2 e)
    of the length of all moves.
    """
    error = gradient_error(run)
    if error is None:
        return NOISE[run.dtype], MOVE_NOISE[run.dtype]
    return SPREAD * error, math.sqrt(2 * error) if run.optimizer.moves_by_sign else SPREAD * error


def statistics_noise(run: Run, drift: float) -> float | None:
    """Returns how far rounding may move the running statistics of a whole run, relative to their length; None in float64.

    The numbers from which a step computes its statistics are off by their rounding, which is less than the bound of its gradient.
    Over the steps, kernels drift apart, and a variance depends on the square of a kernel. Frozen statistics do not change. In
    float64, statistics have the same bound as weights.

    Args:
        run: The run.
        drift: How far its kernels are from the reference's, relative to their length.
    """
    if run.dtype == "float64":
        return None
    if keeps_buffers(run):
        return UNIT_ROUNDOFF[run.dtype]
    return (gradient_error(run) or NOISE[run.dtype]) + 2 * drift


def residual_noise(run: Run) -> float:
    """Returns how far rounding may move what compression left out of the gradients, relative to its length.

    A residual is a hundredth of its gradient, so the same rounding is a hundred times as large relative to it. In float32,
    rounding also tips a few numbers in 10,000 over to the next int8, each by three times the norm of a residual. If a gradient
    is off by more than that, its residual may be anything.
    """
    return math.inf if gradient_error(run) is not None else RESIDUAL_NOISE[run.dtype]

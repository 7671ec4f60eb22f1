"""The growth of rounding errors on their way through batch normalizations."""

import math

from samestep.common.features.batch_norm.statistics import batch_norms, numbers_of_statistics
from samestep.common.strategy import Run

_GELU_SQUARED = 1 / 3 + 1 / (2 * math.sqrt(3) * math.pi)
DIVISION = {"relu": math.pi / (math.pi - 1), "gelu": _GELU_SQUARED / (_GELU_SQUARED - 1 / (4 * math.pi))}
"""Activation -> the mean square of its outputs for normally distributed inputs, divided by their variance: 1.47 and 1.23."""
MOST_GROWTH = 100
"""The largest growth of the square of a rounding error that can be judged; beyond it, almost any deviation would pass."""


def error_growth(run: Run) -> float:
    """Returns by how much the square of a rounding error grows on its way through the batch normalizations of a model.

    Products round numbers relative to their size; a normalization subtracts their mean and divides by their deviation. So the
    square of an error grows by E[z^2] / Var[z] of the layer's input, which is `DIVISION` after an activation. A deviation
    computed from n numbers is sometimes too small itself, which on average adds a factor of (n - 2) / (n - 3).

    References:
        Yang et al., arXiv 1902.08129, "A Mean Field Theory of Batch Normalization", which has the same factors for gradients.
    """
    if not batch_norms(run.workload.model):
        return 1.0
    own = 1.0
    if numbers := numbers_of_statistics(run):
        own = (numbers - 2) / (numbers - 3) if numbers > 3 else math.inf
    return (DIVISION[run.workload.model.facts.activation] * own) ** len(batch_norms(run.workload.model))


def say_growth(run: Run) -> str:
    """Returns a noun clause for what lets rounding errors grow beyond what can be judged; "" if nothing does."""
    if error_growth(run) <= MOST_GROWTH:
        return ""
    return (
        f"what {len(batch_norms(run.workload.model))} successive normalizations divide by the deviation of "
        f"{numbers_of_statistics(run)} numbers"
    )

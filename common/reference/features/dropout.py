"""Dropout, with its derivative written out."""

import dataclasses

import numpy as np

from samestep.common.features.dropout.feature import rate_of
from samestep.common.features.dropout.masks import keeps
from samestep.common.program import Arrays
from samestep.common.reference.step_context import StepContext
from samestep.common.workload.models.spec import ModelSpec


@dataclasses.dataclass
class Dropout:
    """Keeps some elements of each example, multiplied by 1 / (1 - rate). In evaluation it is the identity."""

    rate: float
    number: int
    context: StepContext

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns the kept elements, scaled, [batch, ...], and the factors."""
        if self.context.keys is None:
            return x, None
        elements = np.arange(x[0].size).reshape(x.shape[1:])
        kept = keeps(self.context.keys.reshape(-1, *[1] * (x.ndim - 1)), elements, self.number, self.rate)
        factor = kept / (1 - self.rate)
        return x * factor, factor

    def backward(self, params: Arrays, saved: np.ndarray | None, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Returns the gradient of the input, which is zero for dropped elements."""
        return dy if saved is None else dy * saved


def dropout(spec: ModelSpec, number: int, context: StepContext) -> list[Dropout]:
    """Returns the layer in a list, which is empty if nothing is dropped.

    Args:
        spec: The spec of the model.
        number: The number of the dropout layer in the model, from 0.
        context: The context of the model.
    """
    rate = rate_of(spec)
    return [Dropout(rate, number, context)] if rate else []

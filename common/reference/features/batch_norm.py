"""Batch normalization, with its derivative written out."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from samestep.common.features.batch_norm.statistics import EPSILON, MOMENTUM, batch_norms
from samestep.common.program import Arrays
from samestep.common.reference.step_context import Statistics, StepContext
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec

Kept = tuple[np.ndarray, np.ndarray, int]
"""The normalized inputs, the reciprocals of the standard deviations, and the number of examples behind each statistic."""


@dataclasses.dataclass
class BatchNorm:
    """Normalizes each channel (the last dimension) over consecutive examples, by the biased variance.

    In training it notes the mean and the unbiased variance, by which the program updates its running statistics.
    """

    name: str
    context: StepContext

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Kept]:
        """Returns (x - mean) / sqrt(variance + epsilon) * scale + bias."""
        rows = x.reshape(-1, x.shape[-1])
        if own := self.context.examples:
            rows = x.reshape(max(1, len(x) // own), -1, x.shape[-1])
            mean = rows.mean(axis=1, keepdims=True)
            normal = rows - mean
            variance = (normal * normal).mean(axis=1, keepdims=True)
            unbiased = variance[:, 0] * (rows.shape[1] / (rows.shape[1] - 1))
            self.context.note(self.name, mean[:, 0], unbiased)
        else:
            normal, variance = rows - params[f"{self.name}/running_mean"], params[f"{self.name}/running_var"]
        inverse = 1 / np.sqrt(variance + EPSILON)
        normal *= inverse
        y = normal * params[f"{self.name}/scale"] + params[f"{self.name}/bias"]
        return y.reshape(x.shape), (normal, inverse, own)

    def backward(self, params: Arrays, saved: Kept, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Returns the gradient of the input, which includes that through mean and variance unless these are the running ones."""
        normal, inverse, own = saved
        rows = dy.reshape(normal.shape)
        leading = tuple(range(rows.ndim - 1))
        gradients[f"{self.name}/scale"] = (rows * normal).sum(axis=leading)
        gradients[f"{self.name}/bias"] = rows.sum(axis=leading)
        dn = rows * params[f"{self.name}/scale"]
        if own:
            along = (dn * normal).mean(axis=1, keepdims=True)
            dn = dn - dn.mean(axis=1, keepdims=True) - normal * along
        return (dn * inverse).reshape(dy.shape)


def batch_norm(spec: ModelSpec, name: str, context: StepContext) -> list[BatchNorm]:
    """Returns the layer in a list, which is empty if nothing is normalized.

    Args:
        spec: The spec of the model.
        name: The path of its parameters.
        context: The context of the model.
    """
    return [BatchNorm(name, context)] if name in batch_norms(spec) else []


def move_buffers(buffers: Arrays, seen: Mapping[str, Sequence[Statistics]], run: Run) -> None:
    """Updates the running statistics with those of the first replica's micro-batches, in order.

    Args:
        buffers: The running statistics, which are changed in place.
        seen: The statistics of each layer in the step.
        run: The run.
    """
    for path, statistics in seen.items():
        for mean, variance in statistics[: run.microbatches]:
            for kind, value in (("running_mean", mean), ("running_var", variance)):
                kept = buffers[f"{path}/{kind}"]
                kept += MOMENTUM * (value - kept)

"""The ranker: one embedding table per id, concatenated, then an MLP to one logit."""

import dataclasses

import numpy as np

from samestep.common.program import Arrays
from samestep.common.reference.models.layers import ACTIVATIONS, Linear, Saved, Sequential, scatter_rows
from samestep.common.reference.step_context import StepContext
from samestep.common.workload.models.ranker import RankerSpec


@dataclasses.dataclass
class Tables:
    """Looks up one row in each table and concatenates them."""

    count: int

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Ids [batch, tables] -> [batch, tables * embedding]."""
        return np.concatenate([params[f"tables/{i}/table"][x[:, i]] for i in range(self.count)], axis=1), x

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Ids have no gradient; rows looked up twice add up."""
        for i, part in enumerate(np.split(dy, self.count, axis=1)):
            name = f"tables/{i}/table"
            gradients[name] = scatter_rows(saved[:, i], part, len(params[name]))
        return dy


class Squeeze:
    """Drops the last dim: [batch, 1] -> [batch]."""

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Drops the last dimension."""
        return x[:, 0], None

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Restores it."""
        return dy[:, None]


def Ranker(spec: RankerSpec, context: StepContext) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """Ids [batch, tables] -> logits [batch].

    Args:
        spec: Its sizes.
        context: What its layers read of the present micro-batch.
    """
    activate = ACTIVATIONS[spec.activation]
    tower = [Linear("hidden/0"), activate(), Linear("hidden/1"), activate(), Linear("output"), Squeeze()]
    return Sequential([Tables(len(spec.rows())), *tower])

"""The ranker: one embedding table per id, whose rows are concatenated, and an MLP that computes one logit."""

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
        """Looks up ids [batch, tables], and returns [batch, tables * embedding]."""
        return np.concatenate([params[f"tables/{i}/table"][x[:, i]] for i in range(self.count)], axis=1), x

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Writes the tables' gradients, where rows looked up twice add up; ids have no gradient."""
        for i, part in enumerate(np.split(dy, self.count, axis=1)):
            name = f"tables/{i}/table"
            gradients[name] = scatter_rows(saved[:, i], part, len(params[name]))
        return dy


class Squeeze:
    """Removes the last dimension: [batch, 1] -> [batch]."""

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Removes the last dimension."""
        return x[:, 0], None

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Restores the last dimension."""
        return dy[:, None]


def Ranker(spec: RankerSpec, context: StepContext) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """Builds the network, ids [batch, tables] -> logits [batch].

    Args:
        spec: The sizes of the model.
        context: What its layers need to know about the current micro-batch.
    """
    activate = ACTIVATIONS[spec.activation]
    tower = [Linear("hidden/0"), activate(), Linear("hidden/1"), activate(), Linear("output"), Squeeze()]
    return Sequential([Tables(len(spec.rows())), *tower])

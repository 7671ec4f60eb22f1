"""Muon: matrices move along their orthogonalized momentum; all other parameters are updated as in AdamW.

For a matrix [n, m], with state first_moment (v, zero at the start):

    v <- beta1 * v + (1 - beta1) * g
    u <- beta1 * v + (1 - beta1) * g                       Nesterov's look-ahead
    x <- u / |u|, then five times  x <- a x + (b s + c s^2) x  where  s = x x^T
    w <- w - lr * weight_decay * w - lr * 0.2 * sqrt(max(n, m)) * x

The singular values of x are close to one. With the factor 0.2 sqrt(max(n, m)), a matrix moves about as far as with AdamW, so one
learning rate suits both. The factor is the same for a kernel and its transpose, which frameworks lay out differently; torch's
default factor is not.

References:
    Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024); Liu et al., arXiv 2502.16982 (the factor).
"""

import dataclasses
import math
from typing import ClassVar

from samestep.common.workload.array_type import Array, Arrays
from samestep.common.workload.models.spec import Param
from samestep.common.workload.optimizers.adamw import AdamW

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The coefficients a, b and c of a quintic that raises small singular values fast, and leaves large ones between 0.7 and
1.2."""
ROUNDS = 5
LEAST_NORM = 1e-7
"""The least norm by which a momentum is divided."""


def move(rows: int, columns: int) -> float:
    """Returns the factor by which a matrix with singular values of one moves as far as with AdamW.

    Args:
        rows: The number of rows of the matrix.
        columns: The number of its columns.
    """
    return 0.2 * math.sqrt(max(rows, columns))


@dataclasses.dataclass(frozen=True)
class Muon(AdamW):
    """Muon, which is AdamW for all parameters but two-dimensional kernels; its attributes are those of AdamW.

    Rounding moves a matrix less than it moves other parameters: it is small compared with the other numbers.

    Attributes:
        beta1: The share of the first moment that is kept, for matrices and other parameters.
        beta2: The share of the second moment that is kept, for parameters that are not matrices.
    """

    beta1: float = 0.95
    beta2: float = 0.95
    name: str = dataclasses.field(default="muon", init=False)
    is_elementwise: ClassVar = False

    def state(self, param: Param) -> dict[str, tuple[int, ...]]:
        """Returns the shape of one moment for a matrix, and of two for any other parameter; all have the parameter's shape."""
        return dict.fromkeys(self.slots[: 1 if param.is_matrix else 2], param.shape)

    def update(self, step: int, weight: Array, gradient: Array, state: Arrays) -> None:
        """Updates a parameter in place, as specified by `OptimizerSpec.update`."""
        if "second_moment" in state:
            super().update(step, weight, gradient, state)
            return
        self.move_matrix(weight, gradient, state, move(*weight.shape))

    def move_matrix(self, weight: Array, gradient: Array, state: Arrays, factor: float, ahead: bool = True) -> None:
        """Updates a matrix in place.

        Args:
            weight: The matrix.
            gradient: Its gradient.
            state: Its moment, by name.
            factor: The factor of the orthogonalized move.
            ahead: Whether the update looks ahead along the new moment.
        """
        v = state["first_moment"]
        v *= self.beta1
        v += (1 - self.beta1) * gradient
        looked = self.beta1 * v + (1 - self.beta1) * gradient if ahead else v
        weight -= self.learning_rate * self.weight_decay * weight
        weight -= self.learning_rate * factor * orthogonalized(looked)


def orthogonalized(matrix: Array) -> Array:
    """Returns a matrix with the same singular vectors and singular values near one, by five rounds of Newton-Schulz."""
    a, b, c = COEFFICIENTS
    x = matrix / max(float((matrix * matrix).sum()) ** 0.5, LEAST_NORM)
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    for _ in range(ROUNDS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if is_tall else x


def orthogonal_shards(spec: Muon, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Orthogonalizes the two halves of a matrix separately; see `OptimizerSpec.update`."""
    if "second_moment" in state:
        spec.update(t, w, g, state)
        return
    half = w.shape[0] // 2
    for part in (slice(None, half), slice(half, None)):
        spec.move_matrix(w[part], g[part], {"first_moment": state["first_moment"][part]}, move(*w.shape))


def without_look_ahead(spec: Muon, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Moves along the moment itself; see `OptimizerSpec.update`."""
    if "second_moment" in state:
        spec.update(t, w, g, state)
    else:
        spec.move_matrix(w, g, state, move(*w.shape), ahead=False)


def scaled_by_shape(spec: Muon, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Uses torch's default factor; see `OptimizerSpec.update`."""
    if "second_moment" in state:
        spec.update(t, w, g, state)
    else:
        outputs, inputs = reversed(w.shape)
        spec.move_matrix(w, g, state, math.sqrt(max(1.0, outputs / inputs)))


MISTAKES = {
    orthogonal_shards: "Muon orthogonalizes two shards of each matrix separately, not the whole matrix",
    without_look_ahead: "Muon moves along the momentum itself: Nesterov's look ahead is missing",
    scaled_by_shape: "Muon scales its moves by sqrt(max(1, outputs / inputs)), torch's default, not by 0.2 sqrt(max(n, m))",
}
"""The wrong updates, each with a sentence that describes it."""

"""Adafactor: for a matrix, it only keeps row and column means of squared gradients; its steps are relative to the weights.

For a matrix [n, m], with state row_moment (r, [n, 1]) and column_moment (c, [1, m]), zero at the start:

    b <- 1 - t^-0.8                           so the first step keeps nothing
    r <- b * r + (1 - b) * mean of g^2 along each row
    c <- b * c + (1 - b) * mean of g^2 along each column
    s <- r c / mean(r)
    u <- g / max(sqrt(s), epsilon)
    a <- max(floor, rms(w)) * min(lr, 1 / sqrt(t))
    w <- w - lr * weight_decay * w - a * u / max(1, rms(u))

All other parameters have all of s as their state (second_moment): s <- b * s + (1 - b) * g^2. rms is the root mean square.

References:
    Shazeer and Stern, arXiv 1804.04235; epsilon and the decay are placed as in torch.
"""

import dataclasses
from typing import ClassVar

from samestep.common.workload.array_type import Array, Arrays
from samestep.common.workload.models.spec import Param

FACTORS, WHOLE = ("row_moment", "column_moment"), "second_moment"


@dataclasses.dataclass(frozen=True)
class Adafactor:
    """Adafactor; its attributes are those of `OptimizerSpec`.

    Attributes:
        decay_power: The moments forget the share t ** -decay_power in step t.
        epsilon: The least divisor of a gradient.
        floor: The least size of the weights to which steps are relative.
        weight_decay: The decoupled weight decay.
        spares_vectors: As in `OptimizerSpec`.
        vector_rate: As in `OptimizerSpec`.
    """

    learning_rate: float
    decay_power: float = 0.8
    epsilon: float = 1e-8
    floor: float = 1e-3
    weight_decay: float = 2**-7
    spares_vectors: bool = False
    vector_rate: float = 1.0
    name: str = dataclasses.field(default="adafactor", init=False)
    keys: ClassVar = {**dict(zip(FACTORS, FACTORS, strict=True)), WHOLE: "exp_avg_sq"}
    slots: ClassVar = tuple(keys)
    groups: ClassVar = ()
    default_rate: ClassVar = 2**-6
    is_elementwise: ClassVar = False
    moves_by_sign: ClassVar = True
    counts_steps: ClassVar = True
    rests: ClassVar = False
    gradient_average: ClassVar = None

    @property
    def rounding_move(self) -> float:
        """How far rounding moves a weight: as for AdamW, 2^-53 over epsilon, for weights with a root mean square of at most 1."""
        return self.learning_rate * 2.0**-53 / self.epsilon

    def state(self, param: Param) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the two factors for a two-dimensional parameter, and of all squares for any other."""
        if len(param.shape) != 2:
            return {WHOLE: param.shape}
        rows, columns = param.shape
        return dict(zip(FACTORS, ((rows, 1), (1, columns)), strict=True))

    def kept(self, step: int) -> float:
        """Returns the share b of the moments that step t keeps."""
        return 1 - step**-self.decay_power

    def relative_rate(self, step: int) -> float:
        """Returns the largest size of step t, relative to the weights."""
        return min(self.learning_rate, step**-0.5)

    def update(self, step: int, weight: Array, gradient: Array, state: Arrays) -> None:
        """Updates a parameter in place, as specified by `OptimizerSpec.update`."""
        length = max(self.floor, _rms(weight)) * self.relative_rate(step)
        direction = self.direction(step, gradient, state)
        self.move(weight, direction, length / max(1.0, _rms(direction)))

    def move(self, weight: Array, direction: Array, length: float) -> None:
        """Decays and moves a weight, as the last part of an update and of its mistakes.

        Args:
            weight: The parameter, changed in place.
            direction: The direction in which it moves.
            length: How far it moves.
        """
        weight -= self.learning_rate * self.weight_decay * weight
        weight -= length * direction

    def direction(self, step: int, gradient: Array, state: Arrays) -> Array:
        """Updates the moments and returns u, the gradient divided by the root of their estimate.

        Args:
            step: t, from 1.
            gradient: The gradient.
            state: The moments by name.
        """
        import numpy as np

        squares, kept = gradient * gradient, self.kept(step)
        for slot, axis in ((FACTORS[0], 1), (FACTORS[1], 0)) if WHOLE not in state else ():
            state[slot] *= kept
            state[slot] += (1 - kept) * squares.mean(axis, keepdims=True)
        if WHOLE in state:
            state[WHOLE] *= kept
            state[WHOLE] += (1 - kept) * squares
            estimate = state[WHOLE]
        else:
            rows, columns = (state[slot] for slot in FACTORS)
            estimate = rows * columns / (rows.mean() or 1.0)
        return gradient / np.maximum(np.sqrt(estimate), self.epsilon)


def _rms(values: Array) -> float:
    return float((values * values).mean()) ** 0.5


def factored_shards(spec: Adafactor, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Updates the two halves of a parameter separately; see `OptimizerSpec.update`."""
    half = len(w) // 2
    for part in (slice(None, half), slice(half, None)) if half else (slice(None),):
        spec.update(t, w[part], g[part], {s: value[part] if len(value) > 1 else value for s, value in state.items()})


def absolute_steps(spec: Adafactor, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Does not scale the steps by the size of the weights; see `OptimizerSpec.update`."""
    direction = spec.direction(t, g, state)
    spec.move(w, direction, spec.relative_rate(t) / max(1.0, _rms(direction)))


def unclipped(spec: Adafactor, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Does not limit the root mean square of an update; see `OptimizerSpec.update`."""
    length = max(spec.floor, _rms(w)) * spec.relative_rate(t)
    spec.move(w, spec.direction(t, g, state), length)


MISTAKES = {
    factored_shards: "Adafactor updates two shards of each parameter separately, not the whole parameter",
    absolute_steps: "Adafactor's steps are not relative to the size of the weights",
    unclipped: "Adafactor does not limit its updates to a root mean square of one",
}
"""The wrong updates, each with a sentence that describes it."""

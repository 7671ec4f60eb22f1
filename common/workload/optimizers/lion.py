"""Lion: every weight moves by the learning rate, in the direction of the sign of an averaged gradient.

    c <- beta1 * m + (1 - beta1) * g          state: first_moment (m), zero at the start
    w <- w - lr * weight_decay * w - lr * sign(c)
    m <- beta2 * m + (1 - beta2) * g

References:
    Chen et al., arXiv 2302.06675, algorithm 2.
"""

import dataclasses
from typing import ClassVar

from samestep.common.workload.array_type import Array, Arrays
from samestep.common.workload.models.spec import Param


@dataclasses.dataclass(frozen=True)
class Lion:
    """Lion; its attributes are those of `OptimizerSpec`.

    Attributes:
        beta1: The share of the first moment in the average whose sign is taken.
        beta2: The share of the first moment that is kept.
        weight_decay: The decoupled weight decay. Steps are a third to a tenth of AdamW's, so the decay is stronger by the same
            factor.
        spares_vectors: As in `OptimizerSpec`.
        vector_rate: As in `OptimizerSpec`.
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 2**-5
    spares_vectors: bool = False
    vector_rate: float = 1.0
    name: str = dataclasses.field(default="lion", init=False)
    keys: ClassVar = {"first_moment": "exp_avg"}
    slots: ClassVar = tuple(keys)
    groups: ClassVar = ()
    default_rate: ClassVar = 2**-12
    is_elementwise: ClassVar = True
    moves_by_sign: ClassVar = True
    counts_steps: ClassVar = False
    rests: ClassVar = False

    @property
    def gradient_average(self) -> tuple[str, float, float]:
        """The first moment, as `OptimizerSpec` specifies it."""
        return "first_moment", self.beta2, 1 - self.beta2

    @property
    def rounding_move(self) -> float:
        """How far rounding moves a weight: a true gradient of zero is computed as a number with an arbitrary sign."""
        return self.learning_rate

    def state(self, param: Param) -> dict[str, tuple[int, ...]]:
        """Returns the shape of the moment, which is that of the parameter."""
        return {"first_moment": param.shape}

    def update(self, step: int, weight: Array, gradient: Array, state: Arrays) -> None:
        """Updates a parameter in place, as specified by `OptimizerSpec.update`."""
        import numpy as np

        m = state["first_moment"]
        direction = np.sign(self.beta1 * m + (1 - self.beta1) * gradient)
        weight -= self.learning_rate * self.weight_decay * weight
        weight -= self.learning_rate * direction
        m *= self.beta2
        m += (1 - self.beta2) * gradient


def one_beta(spec: Lion, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Uses the sign of the moment that is kept; see `OptimizerSpec.update`."""
    dataclasses.replace(spec, beta1=spec.beta2).update(t, w, g, state)


def signs_without_decay(spec: Lion, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Does not decay the weights; see `OptimizerSpec.update`."""
    dataclasses.replace(spec, weight_decay=0.0).update(t, w, g, state)


MISTAKES = {
    one_beta: "Lion takes the sign of the moment that it keeps: beta2 stands where beta1 belongs",
    signs_without_decay: "Lion's weights do not decay",
}
"""The wrong updates, each with a sentence that describes it."""

"""AdamW: the weight decay is decoupled, so it does not enter the moments.

    w <- w - lr * weight_decay * w
    m <- beta1 * m + (1 - beta1) * g          state: first_moment (m), second_moment (s), zero at the start
    s <- beta2 * s + (1 - beta2) * g^2
    w <- w - lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + epsilon)

References:
    Loshchilov and Hutter, arXiv 1711.05101.
"""

import dataclasses
import math
from typing import ClassVar

from samestep.common.workload.array_type import Array, Arrays
from samestep.common.workload.models.spec import Param


@dataclasses.dataclass(frozen=True)
class AdamW:
    """AdamW; its attributes are those of `OptimizerSpec`.

    Attributes:
        beta1: The share of the first moment that is kept.
        beta2: The share of the second moment that is kept.
        epsilon: The number that is added to the bias-corrected root.
        weight_decay: The decoupled weight decay. It is a dyadic number, like the workloads' rates: every framework multiplies the
            weights by 1 - lr * weight_decay, and float32 would round other factors so near 1 by up to 3e-8, in the same direction
            at every step.
        spares_vectors: As in `OptimizerSpec`.
        vector_rate: As in `OptimizerSpec`.
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 2**-7
    spares_vectors: bool = False
    vector_rate: float = 1.0
    name: str = dataclasses.field(default="adamw", init=False)
    keys: ClassVar = {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"}
    slots: ClassVar = tuple(keys)
    groups: ClassVar = ()
    default_rate: ClassVar = 2**-10
    is_elementwise: ClassVar = True
    moves_by_sign: ClassVar = True
    counts_steps: ClassVar = True
    rests: ClassVar = False

    @property
    def gradient_average(self) -> tuple[str, float, float]:
        """The first moment, as `OptimizerSpec` specifies it."""
        return "first_moment", self.beta1, 1 - self.beta1

    @property
    def rounding_move(self) -> float:
        """How far rounding moves a weight: a gradient of zero is computed as about 2^-53 if numbers are near one.

        That is divided by its own size or by epsilon, whichever is larger.
        """
        return self.learning_rate * 2.0**-53 / self.epsilon

    def state(self, param: Param) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of both moments, which are that of the parameter."""
        return dict.fromkeys(self.slots, param.shape)

    def update(self, step: int, weight: Array, gradient: Array, state: Arrays) -> None:
        """Updates a parameter in place, as specified by `OptimizerSpec.update`."""
        m, s = self.decay_and_average(weight, gradient, state)
        root = s**0.5 / math.sqrt(1 - self.beta2**step)
        weight -= self.learning_rate / (1 - self.beta1**step) * m / (root + self.epsilon)

    def decay_and_average(self, weight: Array, gradient: Array, state: Arrays) -> tuple[Array, Array]:
        """Decays a weight and updates its moments, as the first part of an update and of its mistakes; returns the moments.

        Args:
            weight: The parameter.
            gradient: Its gradient.
            state: Its moments by name.
        """
        m, s = state["first_moment"], state["second_moment"]
        weight -= self.learning_rate * self.weight_decay * weight
        m *= self.beta1
        m += (1 - self.beta1) * gradient
        s *= self.beta2
        s += (1 - self.beta2) * gradient * gradient
        return m, s


def epsilon_inside(spec: AdamW, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Adds epsilon inside the root; see `OptimizerSpec.update`."""
    m, s = spec.decay_and_average(w, g, state)
    w -= spec.learning_rate / (1 - spec.beta1**t) * m / (s / (1 - spec.beta2**t) + spec.epsilon) ** 0.5


def epsilon_hat(spec: AdamW, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Adds epsilon to the root before the bias correction; see `OptimizerSpec.update`."""
    m, s = spec.decay_and_average(w, g, state)
    w -= spec.learning_rate * math.sqrt(1 - spec.beta2**t) / (1 - spec.beta1**t) * m / (s**0.5 + spec.epsilon)


def no_bias_correction(spec: AdamW, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Does not correct the bias of the moments; see `OptimizerSpec.update`."""
    m, s = spec.decay_and_average(w, g, state)
    w -= spec.learning_rate * m / (s**0.5 + spec.epsilon)


def coupled_decay(spec: AdamW, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Adds the weight decay to the gradient; see `OptimizerSpec.update`."""
    dataclasses.replace(spec, weight_decay=0.0).update(t, w, g + spec.weight_decay * w, state)


def decay_without_rate(spec: AdamW, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Decays the weights without multiplying by the learning rate; see `OptimizerSpec.update`."""
    w *= 1 - spec.weight_decay
    dataclasses.replace(spec, weight_decay=0.0).update(t, w, g, state)


MISTAKES = {
    epsilon_inside: "Adam's epsilon is inside the root",
    epsilon_hat: "Adam's epsilon is added before the bias correction (epsilon-hat, as in Keras)",
    no_bias_correction: "Adam's moments are not corrected for their bias",
    coupled_decay: "the weight decay goes through the moments (L2): it is not decoupled",
    decay_without_rate: "the weight decay is not multiplied by the learning rate",
}
"""The wrong updates, each with a sentence that describes it."""

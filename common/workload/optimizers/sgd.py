"""SGD with momentum, in PyTorch's form.

    v <- momentum * v + g           state: momentum (v, zero at the start)
    w <- w - lr * v

References:
    Sutskever et al. 2013.
"""

import dataclasses
from typing import ClassVar

from samestep.common.workload.array_type import Array, Arrays
from samestep.common.workload.models.spec import Param


@dataclasses.dataclass(frozen=True)
class Sgd:
    """SGD; its attributes are those of `OptimizerSpec`.

    Attributes:
        momentum: The share of the velocity that is kept.
        vector_rate: As in `OptimizerSpec`.
    """

    learning_rate: float
    momentum: float = 0.9
    vector_rate: float = 1.0
    name: str = dataclasses.field(default="sgd", init=False)
    keys: ClassVar = {"momentum": "momentum_buffer"}
    slots: ClassVar = tuple(keys)
    groups: ClassVar = ()
    default_rate: ClassVar = 2**-7
    is_elementwise: ClassVar = True
    moves_by_sign: ClassVar = False
    counts_steps: ClassVar = False
    rests: ClassVar = True
    spares_vectors: ClassVar = False
    rounding_move: ClassVar = 0.0

    @property
    def gradient_average(self) -> tuple[str, float, float]:
        """The velocity, as `OptimizerSpec` specifies it."""
        return "momentum", self.momentum, 1.0

    def state(self, param: Param) -> dict[str, tuple[int, ...]]:
        """Returns the shape of the velocity, which is that of the parameter."""
        return {"momentum": param.shape}

    def update(self, step: int, weight: Array, gradient: Array, state: Arrays) -> None:
        """Updates a parameter in place, as specified by `OptimizerSpec.update`."""
        v = state["momentum"]
        v *= self.momentum
        v += gradient
        weight -= self.learning_rate * v


def momentum_off_by_one(spec: Sgd, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Moves the weights by the velocity of the previous step; see `OptimizerSpec.update`."""
    before = state["momentum"].copy()
    spec.update(t, w.copy(), g, state)
    w -= spec.learning_rate * before


def nesterov(spec: Sgd, t: int, w: Array, g: Array, state: Arrays) -> None:
    """Looks ahead along the new velocity; see `OptimizerSpec.update`."""
    spec.update(t, w.copy(), g, state)
    w -= spec.learning_rate * (g + spec.momentum * state["momentum"])


MISTAKES = {
    momentum_off_by_one: "the update used the momentum of the step before: velocity and weights are updated in the wrong order",
    nesterov: "the update is Nesterov's, not plain momentum",
}
"""The wrong updates, each with a sentence that describes it."""

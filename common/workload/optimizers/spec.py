"""The description of an optimizer, for all code that trains with it, predicts it or judges it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol

from samestep.common.workload.array_type import Array, Arrays
from samestep.common.workload.models.spec import Param

Shape = tuple[int, ...]


class OptimizerSpec(Protocol):
    """An optimizer with its hyper-parameters, which are the fields of a frozen dataclass.

    Attributes:
        name: The name in `--optimizer`; each mirror has a file of this name.
        learning_rate: The step size.
        keys: Slot -> its usual name in files, which is that in torch's optimizers; slots of a user's optimizer keep their names.
        default_rate: The learning rate for workloads that define none for this optimizer.
        is_elementwise: Whether each number is updated from its own gradient and state only. Then a device can update its part of
            a parameter that is split. An optimizer of whole matrices would take another step there.
        moves_by_sign: Whether the first step moves a weight by the sign of its gradient, even if the gradient is tiny.
        counts_steps: Whether an update depends on the number of the step.
        rests: Whether a parameter that never gets a gradient does not change, as if it were left out.
        spares_vectors: Whether weight decay leaves out vectors, i.e. biases and the scales of norms.
        vector_rate: The factor of the learning rate for vectors.
    """

    name: str
    learning_rate: float
    keys: ClassVar[Mapping[str, str]]
    default_rate: ClassVar[float]
    is_elementwise: ClassVar[bool]
    moves_by_sign: ClassVar[bool]
    counts_steps: ClassVar[bool]
    rests: ClassVar[bool]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]

    def __init__(self, learning_rate: float) -> None:
        """Makes an optimizer with default values for all other hyper-parameters."""

    @property
    def spares_vectors(self) -> bool:
        """Whether weight decay leaves out vectors."""
        ...

    @property
    def vector_rate(self) -> float:
        """The factor of the learning rate for vectors."""
        ...

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The names of the parameters in each group of a user's optimizer; empty if there is only one group."""
        ...

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the arrays that it keeps for a parameter, in the order in which updates take them."""
        ...

    @property
    def gradient_average(self) -> tuple[str, float, float] | None:
        """A slot that becomes `keep * slot + take * gradient`, as (slot, keep, take); None if there is none."""

    @property
    def rounding_move(self) -> float | None:
        """How far rounding alone may move a weight whose true gradient is zero; None if there is no formula."""

    def state(self, param: Param) -> Mapping[str, Shape]:
        """Returns the shape of each slot of a parameter."""
        ...

    def update(self, step: int, weight: Array, gradient: Array, state: Arrays) -> None:
        """Updates a parameter and its state in place.

        Args:
            step: The number of the step, t, counted from 1.
            weight: The parameter.
            gradient: Its gradient, which is not changed.
            state: The slots of the parameter, by name.
        """


def groups_vectors(optimizer: OptimizerSpec) -> bool:
    """Returns whether vectors are updated differently from matrices."""
    return optimizer.spares_vectors or optimizer.vector_rate != 1


def of_dimensions(optimizer: OptimizerSpec, num_dims: int) -> OptimizerSpec:
    """Returns the optimizer for parameters with a number of dimensions, with the learning rate and weight decay that they have.

    Args:
        optimizer: The optimizer of the run.
        num_dims: The number of dimensions; 1 for biases and the scales of norms.
    """
    if num_dims > 1 or not groups_vectors(optimizer):
        return optimizer
    changed = {"learning_rate": optimizer.learning_rate * optimizer.vector_rate, "vector_rate": 1.0}
    if optimizer.spares_vectors:
        changed["weight_decay"] = 0.0
    return dataclasses.replace(optimizer, **changed)


Update = Callable[[OptimizerSpec, int, Array, Array, Arrays], None]
"""`OptimizerSpec.update` as a function, which a mutant replaces."""

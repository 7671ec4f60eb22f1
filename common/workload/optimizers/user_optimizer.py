"""The optimizer that the user's file builds, as given in its description."""

import dataclasses
from typing import ClassVar

from samestep.common.workload.array_type import Array, Arrays
from samestep.common.workload.models.spec import Param
from samestep.common.workload.optimizers.table import USER


@dataclasses.dataclass(frozen=True)
class UserOptimizer:
    """The optimizer of the user's file; its attributes are those of `OptimizerSpec`.

    Attributes:
        source: The place of its declaration, as FILE.py:NAME.
        slots: The framework's names of the arrays that it keeps for a parameter.
        groups: The names of the parameters in each of its groups.
        file_rate: The learning rate that the file gives its first group.
    """

    learning_rate: float
    source: str
    slots: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    file_rate: float = 0.0
    name: str = dataclasses.field(default=USER, init=False)
    keys: ClassVar = dict[str, str]()
    default_rate: ClassVar = 0.0  # the file's rate applies
    is_elementwise: ClassVar = True  # `check_optimizer` refuses others by experiment
    moves_by_sign: ClassVar = True
    counts_steps: ClassVar = True
    rests: ClassVar = False
    spares_vectors = False
    vector_rate = 1.0
    gradient_average = None
    rounding_move = None

    def state(self, param: Param) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of its state, which are those of the parameter; optimizers with other state are refused."""
        return dict.fromkeys(self.slots, param.shape)

    def update(self, step: int, weight: Array, gradient: Array, state: Arrays) -> None:
        """Raises an error, since only the user's framework can take its step."""
        raise NotImplementedError(self.source)

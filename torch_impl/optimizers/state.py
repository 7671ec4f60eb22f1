"""Access to the optimizer state of one process."""

from typing import Protocol

import torch
from torch import nn

from samestep.common.workload.optimizers.spec import Shape
from samestep.torch_impl import sharded


def kept(state: dict[str, torch.Tensor], key: str, like: torch.Tensor) -> torch.Tensor:
    """Returns a state tensor that an optimizer keeps for a parameter; zeros before the first update.

    Args:
        state: The optimizer's state of the parameter.
        key: torch's key.
        like: A tensor of the same shape.
    """
    if key not in state:
        state[key] = torch.zeros_like(like)
    return state[key]


class OptimizerState(Protocol):
    """Access to the optimizer state, which is on this process or on the rank that updates the parameter.

    All processes call each method for the same parameters in the same order.
    """

    def local(self, parameter: nn.Parameter) -> dict[str, torch.Tensor] | None:
        """Returns this process's mutable state of a parameter, by torch's keys; None if another process holds it."""

    def full(self, parameter: nn.Parameter, key: str, shape: Shape) -> torch.Tensor:
        """Returns one state tensor of a parameter, gathered from the processes that hold it.

        Args:
            parameter: The parameter that the tensor belongs to.
            key: torch's key of the tensor.
            shape: The shape of the whole tensor.
        """

    def count(self, parameter: nn.Parameter) -> int:
        """Returns the number of updates of a parameter, from the process that holds it; 0 if they are not counted."""


class LocalOptimizerState:
    """Optimizer state if every process has the state of its own part of each parameter."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def local(self, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
        """Returns the optimizer's own state of the parameter."""
        return self._optimizer.state[parameter]

    def full(self, parameter: nn.Parameter, key: str, shape: Shape) -> torch.Tensor:
        """Returns one state tensor, gathered like the parameter itself."""
        return sharded.full_tensor(self._optimizer.state[parameter][key])

    def count(self, parameter: nn.Parameter) -> int:
        """Returns the optimizer's own count of updates; 0 if it has none."""
        return int(self._optimizer.state[parameter].get("step", 0))

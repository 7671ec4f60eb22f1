"""Access to the optimizer state of one process."""

from typing import Protocol

import torch
from torch import nn

from samestep.common.workload.optimizers.spec import Shape
from samestep.torch_impl import sharded


def kept(state: dict[str, torch.Tensor], key: str, like: torch.Tensor) -> torch.Tensor:
    """Returns what an optimizer keeps of a parameter; zeros before the first update.

    Args:
        state: The optimizer's state of the parameter.
        key: Torch's key.
        like: A tensor of the same shape.
    """
    if key not in state:
        state[key] = torch.zeros_like(like)
    return state[key]


class OptimizerState(Protocol):
    """Access to the optimizer state: on this process, or on the rank that updates the parameter.

    All processes call each method for the same parameters in the same order.
    """

    def local(self, parameter: nn.Parameter) -> dict[str, torch.Tensor] | None:
        """This process's state of a parameter, by torch's key, to read and to fill; None if another process holds it."""

    def full(self, parameter: nn.Parameter, key: str, shape: Shape) -> torch.Tensor:
        """Gathers one state tensor of a parameter from the processes that hold it.

        Args:
            parameter: The parameter that the tensor belongs to.
            key: Torch's key of the tensor.
            shape: The shape of the whole tensor.
        """

    def count(self, parameter: nn.Parameter) -> int:
        """Returns how many updates a parameter has taken, if the optimizer counts them; from the process that holds it."""


class LocalOptimizerState:
    """The optimizer state where every process has the state of its own part of each parameter."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def local(self, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
        """Returns the optimizer's own state of the parameter."""
        return self._optimizer.state[parameter]

    def full(self, parameter: nn.Parameter, key: str, shape: Shape) -> torch.Tensor:
        """Gathers one state tensor in the same way as the parameter itself."""
        return sharded.full_tensor(self._optimizer.state[parameter][key])

    def count(self, parameter: nn.Parameter) -> int:
        """Returns the optimizer's own count."""
        return int(self._optimizer.state[parameter].get("step", 0))

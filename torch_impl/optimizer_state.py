"""Where the optimizer state of a parameter is: on this process, or on the rank that updates the parameter."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn


class OptimizerState(Protocol):
    """Access to the optimizer state. All processes call each method for the same parameters in the same order."""

    def local(self, parameter: nn.Parameter) -> dict[str, torch.Tensor] | None:
        """This process's state of a parameter, by torch's key, to read and to fill; None if another process holds it."""

    def full(self, parameter: nn.Parameter, key: str) -> torch.Tensor:
        """One state tensor of a parameter, gathered from wherever it is."""


class LocalOptimizerState:
    """Every process has the optimizer state of whatever part of each parameter it holds."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, full_tensor: Callable[[torch.Tensor], torch.Tensor] = lambda held: held
    ) -> None:
        self._optimizer = optimizer
        self._full_tensor = full_tensor

    def local(self, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
        """The optimizer's own state of the parameter."""
        return self._optimizer.state[parameter]

    def full(self, parameter: nn.Parameter, key: str) -> torch.Tensor:
        """One state tensor, gathered as the parameter itself is."""
        return self._full_tensor(self._optimizer.state[parameter][key])

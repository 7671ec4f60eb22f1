"""Where the optimizer's slots of a parameter are: here, or on the rank that owns the parameter."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn


class Slots(Protocol):
    """Every method is called for the same parameters in the same order by all processes."""

    def held(self, parameter: nn.Parameter) -> dict[str, torch.Tensor] | None:
        """This process's slots of a parameter, by torch's key, to read and to fill; None: another process holds them."""

    def whole(self, parameter: nn.Parameter, key: str) -> torch.Tensor:
        """One slot, gathered from wherever it is."""


class HeldSlots:
    """Every process holds the slots of what it holds of each parameter."""

    def __init__(self, optimizer: torch.optim.Optimizer, whole: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._optimizer = optimizer
        self._whole = whole

    def held(self, parameter: nn.Parameter) -> dict[str, torch.Tensor] | None:
        """The optimizer's own state of it."""
        return self._optimizer.state[parameter]

    def whole(self, parameter: nn.Parameter, key: str) -> torch.Tensor:
        """Gathered as the parameter itself is."""
        return self._whole(self._optimizer.state[parameter][key])

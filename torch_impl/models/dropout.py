"""Dropout whose mask depends on the examples alone, not on who computes them."""

import torch
from torch import nn

from samestep.common.dropout import keeps
from samestep.torch_impl.micro_batch import MICRO_BATCH


class Dropout(nn.Module):
    """Keeps some elements of each example, times 1 / (1 - rate).

    Attributes:
        behind: The path of the layer whose outputs it takes.
    """

    def __init__(self, rate: float, number: int, behind: str = "") -> None:
        super().__init__()
        self.rate, self.number, self.behind = rate, number, behind
        self._dim, self._part, self._parts = 1, 0, 1

    def place(self, dim: int, part: int, parts: int) -> None:
        """Says which part of the activation this rank has.

        Args:
            dim: Along which dim it is cut.
            part: Which part.
            parts: How many there are.
        """
        self._dim, self._part, self._parts = dim, part, parts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, ...] -> [batch, ...]; the identity in evaluation."""
        keys = MICRO_BATCH.keys
        if keys is None or x.is_meta:
            return x
        kept = keeps(keys.view(-1, *[1] * (x.ndim - 1)), self._elements(x), self.number, self.rate)
        return torch.where(kept, x * (1 / (1 - self.rate)), 0.0)

    def _elements(self, x: torch.Tensor) -> torch.Tensor:
        """The index of each element in the whole activation of one example."""
        elements, stride = torch.zeros((), dtype=torch.int64, device=x.device), 1
        for dim in reversed(range(1, x.ndim)):
            size, is_cut = x.shape[dim], dim == self._dim % x.ndim
            own = torch.arange(size, device=x.device) + (self._part * size if is_cut else 0)
            elements = elements + (own * stride).view(-1, *[1] * (x.ndim - 1 - dim))
            stride *= size * (self._parts if is_cut else 1)
        return elements


def dropout(rate: float, number: int, behind: str = "") -> nn.Module:
    """The layer, or the identity if nothing is dropped.

    Args:
        rate: The share of elements that are dropped.
        number: Which dropout of the model, from 0.
        behind: The path of the layer whose outputs it takes.
    """
    return Dropout(rate, number, behind) if rate else nn.Identity()

"""Dropout whose mask depends on the examples alone, not on who computes them."""

import torch
from torch import nn

from samestep.common.batch import Chunk
from samestep.common.dropout import keeps
from samestep.torch_impl.step_context import StepContext


class Dropout(nn.Module):
    """Keeps some elements of each example, times 1 / (1 - rate).

    Attributes:
        behind: The path of the layer whose outputs it takes.
    """

    def __init__(self, rate: float, number: int, context: StepContext, behind: str = "") -> None:
        super().__init__()
        self._context = context
        self.rate, self.number, self.behind = rate, number, behind
        self._cut: dict[int, Chunk] = {}

    def place(self, dim: int, part: Chunk) -> None:
        """Says which part of the activation this rank has.

        Args:
            dim: The dim along which it is cut; it may be cut along several.
            part: Which part.
        """
        self._cut[dim] = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, ...] -> [batch, ...]; the identity in evaluation."""
        keys = self._context.keys
        if keys is None or x.is_meta:
            return x
        kept = keeps(keys.view(-1, *[1] * (x.ndim - 1)), self._elements(x), self.number, self.rate)
        return torch.where(kept, x * (1 / (1 - self.rate)), 0.0)

    def _elements(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the index of each element in the whole activation of one example."""
        elements, stride = torch.zeros((), dtype=torch.int64, device=x.device), 1
        for dim in reversed(range(1, x.ndim)):
            size, part = x.shape[dim], self._cut.get(dim) or self._cut.get(dim - x.ndim) or Chunk()
            own = torch.arange(size, device=x.device) + part.index * size
            elements = elements + (own * stride).view(-1, *[1] * (x.ndim - 1 - dim))
            stride *= size * part.count
        return elements


def dropout(rate: float, number: int, context: StepContext, behind: str = "") -> nn.Module:
    """Returns the layer, or the identity if nothing is dropped.

    Args:
        rate: The share of elements that are dropped.
        number: Which dropout of the model, from 0.
        context: Has the keys of the present examples.
        behind: The path of the layer whose outputs it takes.
    """
    return Dropout(rate, number, context, behind) if rate else nn.Identity()

"""A model as a sequence of pieces, so that whatever splits layers can run any part of it."""

from collections.abc import Callable, Iterable
from typing import Protocol

import torch

Piece = Callable[[torch.Tensor], torch.Tensor]


class InPieces(Protocol):
    """What every model here is."""

    def cuts(self) -> dict[str, Piece]:
        """Its smallest pieces in order, named as the spec's cuts; one after the other they are its forward pass."""


def chained(pieces: Iterable[Piece], x: torch.Tensor) -> torch.Tensor:
    """One piece after the other."""
    for piece in pieces:
        x = piece(x)
    return x

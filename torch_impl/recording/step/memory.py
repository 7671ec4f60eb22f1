"""The memory that holds the sums of examples until their step is written."""

from collections.abc import Sequence

import numpy as np
import torch

Sums = torch.Tensor | np.ndarray
"""The sum of each example of a call, over its inputs or of one of them, uint64 [examples], or int64 of the same bits."""


class Memory:
    """Memory of the host for sums, which each step takes again: its first way from torch to NumPy costs as much as a product."""

    def __init__(self) -> None:
        """Has none yet."""
        self._places: list[torch.Tensor] = []
        self._views: dict[int, memoryview] = {}

    def of(self, place: int, rows: int) -> torch.Tensor:
        """Returns memory for the sums of a call.

        Args:
            place: The place of the call in its step.
            rows: The number of its examples.
        """
        if place < len(self._places) and self._places[place].shape[0] == rows:
            return self._places[place]
        made = torch.empty(rows, dtype=torch.int64, device="cpu")
        for each in self._places[place:]:
            del self._views[id(each)]
        self._places[place:] = [made]
        self._views[id(made)] = made.numpy().data
        return made

    def bytes_of(self, calls: Sequence[Sums]) -> bytes:
        """Returns the sums of the calls of a step as a record keeps them."""
        if len(calls) == 1:  # of the steps of most scripts
            return bytes(self._views.get(id(calls[0])) or on_host(calls[0]))
        return b"".join([self._views.get(id(each)) or on_host(each).data for each in calls])


def on_host(sums: Sums) -> np.ndarray:
    """Returns sums as NumPy has them, uint64 [examples]."""
    return sums if isinstance(sums, np.ndarray) else sums.cpu().numpy().view(np.uint64)

"""Host memory that holds the sums of examples until their step is written."""

from collections.abc import Sequence

import numpy as np
import torch

Sums = torch.Tensor | np.ndarray
"""The sum of each example of a call, over all of its inputs or one, as uint64 [examples] or int64 with the same bits."""


class Memory:
    """Host memory for sums, which all steps reuse, because a new view in NumPy costs as much as a product."""

    def __init__(self) -> None:
        """Starts without memory."""
        self._places: list[torch.Tensor] = []
        self._views: dict[int, memoryview] = {}

    def of(self, place: int, rows: int) -> torch.Tensor:
        """Returns memory for the sums of a call.

        Args:
            place: The place of the call in its step.
            rows: The number of examples in the call.
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
        """Returns the sums of the calls of a step in the form of a record."""
        if len(calls) == 1:  # as in the steps of most scripts
            return bytes(self._views.get(id(calls[0])) or on_host(calls[0]))
        return b"".join([self._views.get(id(each)) or on_host(each).data for each in calls])


def on_host(sums: Sums) -> np.ndarray:
    """Returns sums as a NumPy array, uint64 [examples]."""
    return sums if isinstance(sums, np.ndarray) else sums.cpu().numpy().view(np.uint64)

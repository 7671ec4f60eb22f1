"""What modules returned within a step. A script may keep no more of it than a view, as in `generator(noise).detach()`.

So it is known by its memory, which is not kept alive.
"""

import weakref
from collections.abc import Callable, Sequence, Set

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from samestep.torch_impl.recording.pieces import has_no_numbers, is_wrapped

_MOST = 64
"""Remembered, before those that are gone are dropped."""


class Results:
    """Those of one step."""

    def __init__(self) -> None:
        """Has none."""
        self._found: list[Callable[[], torch.Tensor | None]] = []

    def clear(self) -> None:
        """Begins a step."""
        self._found = []

    def add(self, result: torch.Tensor, given: Set[int]) -> None:
        """Remembers a tensor that a module returned.

        Args:
            result: The tensor.
            given: Where the numbers lie that the module was called on: a view of them is no result.
        """
        if len(self._found) > _MOST:
            self._found = [each for each in self._found if each() is not None]
        is_plain = type(result) is torch.Tensor and result.layout is torch.strided
        if not is_plain or is_wrapped(result) or has_no_numbers(result):
            self._found.append(weakref.ref(result))
        elif (storage := result.untyped_storage()).data_ptr() not in given:
            self._found.append(_Remembered(result, storage))

    def alive(self) -> Sequence[torch.Tensor]:
        """Returns those that the script still has, or has a view of."""
        return [result for each in self._found if (result := each()) is not None]


class _Remembered:
    """The memory of a tensor, and how the tensor lies in it."""

    def __init__(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
        self._storage, self._dtype = StorageWeakRef(storage), tensor.dtype
        self._layout = tensor.storage_offset(), tensor.shape, tensor.stride()

    def __call__(self) -> torch.Tensor | None:
        storage = torch.UntypedStorage._new_with_weak_ptr(self._storage.cdata)
        if storage is None:
            return None
        return torch.empty(0, dtype=self._dtype, device=storage.device).set_(storage, *self._layout)

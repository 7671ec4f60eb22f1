"""Remembers what modules returned within a step. A script may keep only a view of it, as in `generator(noise).detach()`.

So results are identified by their memory, which is not kept alive.
"""

import functools
import weakref
from collections.abc import Callable, Sequence, Set

import torch

from samestep.torch_impl.recording.pieces import is_wrapped

_MOST = 64
"""The number of remembered results above which deleted ones are dropped."""


class Results:
    """The results of a step. What a module returns after the update, such as the fakes of a GAN, belongs to the next step."""

    def __init__(self) -> None:
        """Starts with no results."""
        self.found: list[Callable[[], torch.Tensor | None]] = []
        self._used: list[Callable[[], torch.Tensor | None]] | None = None
        self._in_graphs: list[weakref.ref[torch.UntypedStorage]] = []
        self._carried: list[weakref.ref[torch.UntypedStorage]] = []

    def forget(self) -> None:
        """Discards all results."""
        self.found, self._used, self._in_graphs, self._carried = [], None, [], []

    def see_update(self) -> None:
        """Notes that an optimizer has updated weights."""
        self.found, self._used = [], [*(self._used or ()), *self.found]

    def end_step(self) -> None:
        """Keeps the results that came after the last update; none if no optimizer updated."""
        self.found, self._used = self.found if self._used is not None else [], None
        self._in_graphs, self._carried = [], self._in_graphs

    def add(self, result: torch.Tensor, given: Set[int]) -> None:
        """Remembers a tensor that a module returned.

        Args:
            result: The tensor.
            given: The addresses of the module's inputs; a view of an input is not a result.
        """
        if len(self.found) > _MOST:
            self.found = [each for each in self.found if each() is not None]
            self._in_graphs = [each for each in self._in_graphs if each() is not None]
        is_plain = type(result) is torch.Tensor and result.layout is torch.strided and not result.is_meta
        if not is_plain or is_wrapped(result):
            self.found.append(weakref.ref(result))
        elif (storage := result.untyped_storage()).data_ptr() not in given:
            layout = result.storage_offset(), result.shape, result.stride()
            memory = weakref.ref(storage)
            self.found.append(functools.partial(_remembered, memory, result.dtype, layout))
            if result.requires_grad:
                self._in_graphs.append(memory)

    def carried(self) -> set[int]:
        """Returns the addresses of the previous step's results that had a gradient, as an RNN's state is passed on detached."""
        return {storage.data_ptr() for each in self._carried if (storage := each()) is not None}

    def alive(self) -> Sequence[torch.Tensor]:
        """Returns the results of which the script still has at least a view."""
        every = [*self._used, *self.found] if self._used else self.found
        return [result for each in every if (result := each()) is not None] if every else []


def _remembered(
    memory: weakref.ref[torch.UntypedStorage],
    dtype: torch.dtype,
    layout: tuple[int | torch.SymInt, Sequence[int], Sequence[int]],
) -> torch.Tensor | None:
    """Returns a tensor with a layout in some memory; None if no tensor uses that memory any longer."""
    storage = memory()
    return None if storage is None else torch.empty(0, dtype=dtype, device=storage.device).set_(storage, *layout)

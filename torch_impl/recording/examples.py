"""Which examples the model was called on: the mirror of common/steps/rows.py.

The tensors of a call that have as many rows as its first one make the hashes together. A tensor that asks for a gradient, or that
a model returned within the step, is a result and no data: its last bits may differ where the data are the same.
"""

import functools
import weakref
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from samestep.common.steps.rows import coefficients, is_channels_last, mix
from samestep.torch_impl.recording.pieces import local_of

_SINGLE = torch.float32  # before float64 mode renames it
_MOST_RESULTS = 64
"""Remembered, before those that are gone are dropped."""


class Examples:
    """The examples of a step, as hashes."""

    def __init__(self) -> None:
        """Has seen none."""
        self._sums: list[np.ndarray | torch.Tensor] = []
        self._results: list[weakref.ref[torch.Tensor]] = []

    def clear(self) -> None:
        """Begins a step."""
        self._sums, self._results = [], []

    def add(self, arguments: Sequence[object], keywords: Mapping[str, object]) -> None:
        """Adds the examples of a call.

        Args:
            arguments: The arguments of the module.
            keywords: The keywords of the module.
        """
        results = {result.untyped_storage().data_ptr() for each in self._results if (result := each()) is not None}
        tensors = [
            each
            for each in _tensors([*arguments, *(keywords[name] for name in sorted(keywords))])
            if each.ndim and not each.requires_grad and not each.is_complex()
        ]
        inputs = [local for each in tensors if (local := local_of(each)).untyped_storage().data_ptr() not in results]
        together = [each for each in inputs if len(each) == len(inputs[0])]
        if together:
            self._sums.append(functools.reduce(_add, map(_sums, range(len(together)), together)))

    def add_result(self, result: object) -> None:
        """Remembers what a module returned, in whatever mode."""
        if len(self._results) > _MOST_RESULTS:
            self._results = [each for each in self._results if each() is not None]
        self._results += map(weakref.ref, _tensors([result]))

    def hashes(self) -> tuple[int, ...] | None:
        """Returns the hash of each example of the step; None if no call had any."""
        if not self._sums:
            return None
        sums = [each.cpu().numpy().view(np.uint64) if isinstance(each, torch.Tensor) else each for each in self._sums]
        return tuple(mix(np.concatenate(sums)).tolist())


def _tensors(values: Sequence[object]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
        elif isinstance(value, Mapping):
            yield from _tensors([value[name] for name in sorted(value, key=str)])


def _sums(place: int, tensor: torch.Tensor) -> np.ndarray | torch.Tensor:
    """Sums words x coefficients: uint64 [examples], or int64 on a device."""
    if is_channels_last(tensor.shape):
        tensor = tensor.movedim(3, 1)
    flat = tensor.reshape(len(tensor), -1)
    flat = flat.to(_SINGLE).contiguous() if flat.is_floating_point() else flat.to(torch.int64)
    if flat.device.type == "cpu":
        words = flat.numpy().view(np.uint32 if flat.is_floating_point() else np.uint64)
        return np.einsum("ij,j->i", words, coefficients(place, words.shape[1]))
    words = flat.view(torch.int32).to(torch.int64) & 0xFFFFFFFF if flat.is_floating_point() else flat
    return (words * _on_device(place, words.shape[1], words.device)).sum(1)


@functools.lru_cache(64)
def _on_device(place: int, size: int, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(coefficients(place, size).view(np.int64)).to(device)


def _add(one: np.ndarray | torch.Tensor, two: np.ndarray | torch.Tensor) -> np.ndarray | torch.Tensor:
    if isinstance(one, np.ndarray) and isinstance(two, torch.Tensor):
        return one + two.cpu().numpy().view(np.uint64)
    if isinstance(one, torch.Tensor) and isinstance(two, np.ndarray):
        return _add(two, one)
    return one + two  # pyrefly: ignore

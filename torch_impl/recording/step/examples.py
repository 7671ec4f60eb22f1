"""Which examples the model was called on: the mirror of common/steps/rows.py.

The tensors of a call that have as many rows as its first one make the hashes together. A tensor that asks for a gradient, or that
a model returned within the step, is a result and no data: its last bits may differ where the data are the same. So are rows of a
result in a batch that holds data as well, as the discriminator of a GAN may be given it.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from samestep.common.steps.rows import FEW, coefficients, is_channels_last, mix, mixed
from samestep.torch_impl.recording.pieces import has_no_numbers, local_of, unwrapped
from samestep.torch_impl.recording.step.results import Results
from samestep.torch_impl.recording.step.sparse import coefficients_at, entries_of, has_sparse_rows, values_of

Sums = list[torch.Tensor | np.ndarray]
"""For each input of a call, the sum of each example, which are added."""
_SINGLE = torch.float32  # before float64 mode renames it


class Examples:
    """The examples of a step, as hashes."""

    def __init__(self) -> None:
        """Has seen none."""
        self._sums, self._num_taken = list[Sums](), 0
        self._results = Results()

    def clear(self) -> None:
        """Begins a step."""
        self._sums, self._num_taken = [], 0
        self._results.clear()

    @property
    def is_pending(self) -> bool:
        """Whether there were calls since they were taken."""
        return len(self._sums) > self._num_taken

    def taken(self) -> list[Sums]:
        """Returns the sums of the calls since it was asked last."""
        first, self._num_taken = self._num_taken, len(self._sums)
        return self._sums[first:]

    def add(self, arguments: Sequence[object], keywords: Mapping[str, object]) -> list[torch.Tensor]:
        """Adds the examples of a call; returns the tensors that hold them.

        Args:
            arguments: The arguments of the module.
            keywords: The keywords of the module.
        """
        inputs = self.given(arguments, keywords)
        together = [each for each in inputs if each.shape[0] == inputs[0].shape[0]]
        if together:
            self._sums.append(self._of_data([*map(sums_of, itertools.count(), together)], together[0]))
        return together

    def _of_data(self, sums: Sums, inputs: torch.Tensor) -> Sums:
        """Returns the sums without those of rows that a model returned.

        Args:
            sums: Of each input of a call.
            inputs: The first of them.
        """
        for result in self._results.alive():
            if (result.ndim, result.dtype) != (inputs.ndim, inputs.dtype) or not _has_rows(result):
                continue
            if result.shape[1:] == inputs.shape[1:]:
                computed = _on_host(sums_of(0, local_of(unwrapped(result.detach()))))
                is_data = ~np.isin(_on_host(sums[0]), computed)
                sums = [_on_host(own)[is_data] for own in sums]
        return sums

    def given(self, arguments: Sequence[object], keywords: Mapping[str, object]) -> list[torch.Tensor]:
        """Returns the tensors of a call that are no results.

        Args:
            arguments: The arguments.
            keywords: The keywords.
        """
        inputs = [
            local_of(inner)
            for each in tensors_in(
                [*arguments, *(keywords[name] for name in sorted(keywords))] if keywords else arguments
            )
            if (inner := unwrapped(each)).ndim and not each.requires_grad and _has_rows(each)
        ]
        results = {*map(memory_of, self._results.alive())}
        return [each for each in inputs if memory_of(each) not in results] if results else inputs

    def add_result(self, result: object, arguments: Sequence[object]) -> None:
        """Remembers what a module returned, in whatever mode.

        Args:
            result: What it returned.
            arguments: What it was called on.
        """
        dense = [each for each in tensors_in(arguments) if each.layout is torch.strided and not has_no_numbers(each)]
        given = {*map(memory_of, dense)}
        for each in [result] if type(result) is torch.Tensor else tensors_in([result]):
            self._results.add(each, given)

    def hashes(self) -> tuple[int, ...] | None:
        """Returns the hash of each example of the step; None if no call had any."""
        return hashed(self._sums) if self._sums else None


def hashed(calls: Sequence[Sums]) -> tuple[int, ...]:
    """Returns the hash of each example of some calls.

    Args:
        calls: The sums of each.
    """
    if sum(len(inputs[0]) for inputs in calls) <= FEW:
        return mixed([sum(row) for inputs in calls for row in zip(*[each.tolist() for each in inputs], strict=True)])
    sums = [functools.reduce(np.add, map(_on_host, inputs)) for inputs in calls]
    return tuple(mix(np.concatenate(sums)).tolist())


def _has_rows(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has rows of one length."""
    if tensor.layout != torch.strided:
        return has_sparse_rows(tensor)
    return not tensor.is_complex() and not tensor.is_nested


def memory_of(tensor: torch.Tensor) -> int:
    """Returns where the numbers of a tensor lie."""
    inner = unwrapped(tensor)
    return (inner if inner.layout == torch.strided else values_of(inner)).untyped_storage().data_ptr()


def tensors_in(values: Sequence[object]) -> Iterator[torch.Tensor]:
    """Yields the tensors in lists and mappings, those of a mapping by their names."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
        elif isinstance(value, Mapping):
            yield from tensors_in([value[name] for name in sorted(value, key=str)])


def sums_of(place: int, tensor: torch.Tensor) -> torch.Tensor | np.ndarray:
    """Sums words x coefficients: uint64 [examples], or int64 of the same bits.

    Args:
        place: The place of the input among those of the call.
        tensor: The input, [examples, ...].
    """
    if tensor.layout != torch.strided:
        return _sparse_sums(place, tensor)
    if tensor.ndim == 4 and is_channels_last(tensor.shape):
        tensor = tensor.movedim(3, 1)
    flat = tensor if tensor.ndim == 2 else tensor.reshape(tensor.shape[0], -1)
    is_on_host, size = flat.device.type == "cpu", flat.shape[1]
    if flat.is_floating_point():
        bits = flat.to(_SINGLE).contiguous().view(torch.int32)
        if is_on_host:
            return np.einsum("ij,j->i", bits.numpy().view(np.uint32), coefficients(place, size))
        words = bits.to(torch.int64) & 0xFFFFFFFF
    else:
        words = flat if flat.dtype == torch.int64 else flat.to(torch.int64)
    by = _coefficients(place, size, words.device)
    return torch.mv(words, by) if is_on_host else (words * by).sum(1)


def _sparse_sums(place: int, tensor: torch.Tensor) -> torch.Tensor:
    examples, places, values = entries_of(tensor)
    if values.is_floating_point():
        words = values.to(_SINGLE).view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    else:
        words = values.to(torch.int64)
    products = words * coefficients_at(place, places)
    return torch.zeros(len(tensor), dtype=torch.int64, device=words.device).index_add_(0, examples, products)


@functools.lru_cache(64)
def _coefficients(place: int, size: int, device: torch.device) -> torch.Tensor:
    if size & (size - 1):  # as coefficients() itself does
        return _coefficients(place, 1 << size.bit_length(), device)[:size]
    return torch.from_numpy(coefficients(place, size).view(np.int64)).to(device)


def _on_host(sums: torch.Tensor | np.ndarray) -> np.ndarray:
    return sums if isinstance(sums, np.ndarray) else sums.cpu().numpy().view(np.uint64)

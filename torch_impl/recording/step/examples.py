"""Which examples the model was called on: the mirror of common/steps/rows.py.

The tensors of a call that have as many rows as its first one make the hashes together; a packed batch is one row. The padding
that an `attention_mask` among the keywords hides counts as zero, whatever a batch is padded with and on which side.
A tensor that asks for a gradient, or that a model returned within the step, is a result and no data: its last bits may differ
where the data are the same. So are rows of a result in a batch that holds data as well, as a discriminator may be given it.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from samestep.common.steps.rows import coefficients, is_channels_last
from samestep.torch_impl.recording.pieces import has_no_numbers, local_of, unwrapped
from samestep.torch_impl.recording.step.padding import leading_of, shown_by, without_padding
from samestep.torch_impl.recording.step.results import Results
from samestep.torch_impl.recording.step.sparse import coefficients_at, entries_of, has_sparse_rows, values_of

Sums = torch.Tensor | np.ndarray
"""The sum of each example of a call over its inputs, uint64 [examples], or int64 of the same bits."""
_SINGLE = torch.float32  # before float64 mode renames it


class Examples:
    """The examples of a step, as hashes."""

    def __init__(self) -> None:
        """Has seen none."""
        self._sums, self._num_taken, self._memory = list[Sums](), 0, Memory()
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
        if not inputs:
            return inputs
        leading, mask = inputs[0], shown_by(keywords["attention_mask"]) if "attention_mask" in keywords else None
        if leading.ndim == 1 and not tensors_in(arguments):
            leading = leading_of(inputs)
        out, rows = self._memory.of(len(self._sums), leading.shape[0]), leading.shape[0]
        together, sums = list[torch.Tensor](), None  # type: list[torch.Tensor], Sums | None
        for each in inputs:
            if each.shape[0] == rows:
                data = each if mask is None else without_padding(each, mask, each is keywords.get("position_ids"))
                sums = sums_of(len(together), data, out, sums)
                together.append(each)
        assert sums is not None
        if results := self._results.alive():
            sums = _of_data(sums, together[0], results)
        self._sums.append(sums)
        return together

    def given(self, arguments: Sequence[object], keywords: Mapping[str, object]) -> list[torch.Tensor]:
        """Returns the tensors of a call that are no results.

        Args:
            arguments: The arguments.
            keywords: The keywords.
        """
        inputs = list[torch.Tensor]()
        if keywords:
            arguments = [*arguments, *(keywords[name] for name in sorted(keywords))]
        for each in tensors_in(arguments):
            if not each.requires_grad and (inner := unwrapped(each)).ndim and _has_rows(each):
                inputs.append(local_of(inner))
        if alive := self._results.alive():
            results = {*map(memory_of, alive)}
            return [each for each in inputs if memory_of(each) not in results]
        return inputs

    def add_result(self, result: object, arguments: Sequence[object]) -> None:
        """Remembers what a module returned, in whatever mode.

        Args:
            result: What it returned.
            arguments: What it was called on.
        """
        given = set[int]()
        for each in tensors_in(arguments):
            if each.layout is torch.strided and not has_no_numbers(each):
                given.add(memory_of(each))
        for each in tensors_in([result]):
            self._results.add(each, given)

    def sums(self) -> bytes | None:
        """Returns the sum of each example of the step, which is mixed where it is read; None if no call had any."""
        return self._memory.bytes_of(self._sums) if self._sums else None


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
        self._views[id(made)] = memoryview(made.numpy())
        return made

    def bytes_of(self, calls: Sequence[Sums]) -> bytes:
        """Returns the sums of the calls of a step as a record keeps them."""
        views = self._views
        return b"".join([views.get(id(each)) or _on_host(each) for each in calls])


def _of_data(sums: Sums, inputs: torch.Tensor, results: Sequence[torch.Tensor]) -> Sums:
    """Returns the sums without those of rows that a model returned.

    Args:
        sums: Of a call.
        inputs: Its first input.
        results: What models returned.
    """
    own = None
    for result in results:
        if (result.ndim, result.dtype) != (inputs.ndim, inputs.dtype) or not _has_rows(result):
            continue
        if result.shape[1:] == inputs.shape[1:]:
            own = _on_host(sums_of(0, inputs)) if own is None else own
            computed = _on_host(sums_of(0, local_of(unwrapped(result.detach()))))
            is_data = ~np.isin(own, computed)
            sums, own = _on_host(sums)[is_data], own[is_data]
    return sums


def _has_rows(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has rows of one length."""
    if tensor.layout != torch.strided:
        return has_sparse_rows(tensor)
    return not tensor.is_complex() and not tensor.is_nested


def memory_of(tensor: torch.Tensor) -> int:
    """Returns where the numbers of a tensor lie."""
    inner = unwrapped(tensor)
    return (inner if inner.layout == torch.strided else values_of(inner)).untyped_storage().data_ptr()


def tensors_in(values: Sequence[object]) -> list[torch.Tensor]:
    """Returns the tensors in lists and mappings, those of a mapping by their names."""
    found = list[torch.Tensor]()
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):  # a union of types would be made anew
            found += tensors_in(value)
        elif isinstance(value, Mapping):
            found += tensors_in([value[name] for name in sorted(value, key=str)])
    return found


def sums_of(place: int, tensor: torch.Tensor, out: torch.Tensor | None = None, before: Sums | None = None) -> Sums:
    """Sums words x coefficients.

    Args:
        place: The place of the input among those of the call.
        tensor: The input, [examples, ...].
        out: Memory of the host that may take them.
        before: The sums of other inputs of the call, which are added.
    """
    if tensor.layout is not torch.strided:
        return _together(_sparse_sums(place, tensor), before)
    if tensor.ndim == 4 and is_channels_last(tensor.shape):
        tensor = tensor.movedim(3, 1)
    flat = tensor if tensor.ndim == 2 else tensor.reshape(tensor.shape[0], -1)
    is_on_host, size = flat.is_cpu, flat.shape[1]
    if flat.is_floating_point():
        bits = flat.to(_SINGLE).contiguous().view(torch.int32)
        if is_on_host:
            return _together(np.einsum("ij,j->i", bits.numpy().view(np.uint32), coefficients(place, size)), before)
        words = bits.to(torch.int64) & 0xFFFFFFFF
    else:
        words = flat if flat.dtype is torch.int64 else flat.to(torch.int64)
    by = _coefficients(place, size, words.device)
    if not is_on_host:
        return _together((words * by).sum(1), before)
    if isinstance(before, torch.Tensor) and before.is_cpu:
        return torch.addmv(before, words, by, out=out)
    return _together(torch.mv(words, by, out=out), before)


def _together(sums: Sums, before: Sums | None) -> Sums:
    if before is None:
        return sums
    if isinstance(sums, torch.Tensor) and isinstance(before, torch.Tensor):
        return sums + before
    return _on_host(sums) + _on_host(before)


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


def _on_host(sums: Sums) -> np.ndarray:
    return sums if isinstance(sums, np.ndarray) else sums.cpu().numpy().view(np.uint64)

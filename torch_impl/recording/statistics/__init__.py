"""Computes in torch what a record keeps of tensors; the mirror of common/steps/projections.py, for many tensors at once.

A projection is two products, with the signs of the rows and then with those of the columns. The first is one matrix product for
all tensors of a shape, the second one product for all tensors with the same columns. Nothing is copied to the host before
`resolve`, so a step does not wait for a GPU. Tensors in host memory are computed in fewer calls (`host.py`).
"""

from collections.abc import Sequence

import numpy as np
import torch

from samestep.common.steps.projections import BITS, Piece, stored_bits
from samestep.common.steps.record import absent, stats_dtype
from samestep.torch_impl.recording.dtypes import exact_products
from samestep.torch_impl.recording.statistics.blocks import Block, Kind, Places, Signs, blocks_of, line
from samestep.torch_impl.recording.statistics.host import Found, HostLot, is_of_host

_SINGLE, _DOUBLE = torch.float32, torch.float64  # before float64 mode renames them
_WORDS, _HALVES = torch.int32, torch.int16
_TOGETHER = 2**24
"""The largest number of elements in a stack, which are 64 MiB of float32."""

_Stack = tuple[list[tuple[int, slice | None]], tuple[int, int], torch.Tensor]
"""Blocks of one shape, each given by its tensor's place and the range in the tensor; the shape; and the signs of the rows."""


class _Lot:
    """The blocks of one dtype and device. Each call takes the host some microseconds, so equal blocks are stacked."""

    def __init__(self, blocks: Sequence[Block], kind: Kind) -> None:
        """Sorts the blocks by their columns, and those with the same columns by their rows.

        Args:
            blocks: The blocks.
            kind: Their dtype and device.
        """
        self._dtype = kind[0] if kind[0] in (_SINGLE, _DOUBLE) else _SINGLE
        self._device = kind[1]
        groups: dict[int, dict[int, list[Block]]] = {}
        for each in blocks:
            groups.setdefault(id(each.columns), {}).setdefault(id(each.rows), []).append(each)
        self._places = Places([each for equal in groups.values() for own in equal.values() for each in own])
        self._groups = [
            (
                next(iter(equal.values()))[0].columns.on(self._dtype, self._device),
                [self._stack(each) for own in equal.values() for each in _stacked(own)],
            )
            for equal in groups.values()
        ]

    def _stack(self, equal: Sequence[Block]) -> _Stack:
        rows_KR = equal[0].rows.on(self._dtype, self._device)
        return [(each.place, each.cut) for each in equal], equal[0].shape, rows_KR.expand(len(equal), -1, -1)

    @exact_products()
    def __call__(self, values: Sequence[torch.Tensor | None]) -> Found:
        """Computes the statistics of the blocks.

        Args:
            values: All tensors.
        """
        size, on, first, projections = len(self._places.index), self._device, 0, []
        bits = torch.empty(size, dtype=_WORDS, device=on)
        norms = torch.empty(size, dtype=self._dtype, device=on)
        for columns_KC, stacks in self._groups:
            start, count = first, sum(len(members) for members, *_ in stacks)
            halves_NKC = torch.empty(count, *columns_KC.shape, dtype=self._dtype, device=on)
            for members, shape, rows_NKR in stacks:
                end = first + len(members)
                parts = [line(values[place], cut) for place, cut in members]
                given = torch.stack(parts) if len(parts) > 1 else parts[0][None]
                torch.sum(_words(given), 1, dtype=_WORDS, out=bits[first:end])
                x = given if given.dtype == self._dtype else given.to(self._dtype)
                torch.linalg.vector_norm(x, dim=1, out=norms[first:end])
                # With `out`, autocast does not apply.
                torch.bmm(rows_NKR, x.view(-1, *shape), out=halves_NKC[first - start : end - start])
                first = end
            projections.append(halves_NKC.mul_(columns_KC).sum(2))
        return self._places, torch.cat(projections), norms.square_(), bits


def _stacked(equal: Sequence[Block]) -> list[Sequence[Block]]:
    """Returns blocks of one shape in stacks; a block larger than a stack may be is alone, and is not copied."""
    together = max(1, _TOGETHER // equal[0].size)
    return [equal[first : first + together] for first in range(0, len(equal), together)]


class Statistics:
    """Computes the statistics of a fixed list of tensors, repeatedly as they change."""

    def __init__(self, pieces: Sequence[Piece], is_float64: bool) -> None:
        """Computes the signs of all pieces; equal rows or columns share theirs.

        Args:
            pieces: The piece of each tensor that this process holds.
            is_float64: Whether the record keeps float64.
        """
        shared: dict[tuple, Signs] = {}
        self._blocks = [blocks_of(place, piece, shared) for place, piece in enumerate(pieces)]
        self._dtype = stats_dtype(is_float64)
        self._plans: dict[tuple[Kind | None, ...], tuple[list[int], list[_Lot | HostLot]]] = {}

    def __call__(self, values: Sequence[torch.Tensor | None]) -> "Pending":
        """Starts to compute the statistics.

        Args:
            values: The pieces, in the order of the constructor; None for missing ones.
        """
        kinds = tuple(None if value is None else (value.dtype, value.device) for value in values)
        if kinds not in self._plans:
            self._plans[kinds] = self._planned(kinds)
        absent, lots = self._plans[kinds]
        return Pending(len(values), self._dtype, absent, [lot(values) for lot in lots])

    def _planned(self, kinds: Sequence[Kind | None]) -> tuple[list[int], list[_Lot | HostLot]]:
        """Returns the places of missing tensors, and the lots that compute the others."""
        on_host, others = dict[torch.dtype, list[Block]](), dict[Kind, list[Block]]()
        for kind, blocks in zip(kinds, self._blocks, strict=True):
            if kind is None:
                continue
            for each in blocks:
                if is_of_host(*kind):
                    on_host.setdefault(kind[0], []).append(each)
                else:
                    others.setdefault(kind, []).append(each)
        lots = [
            *(HostLot(blocks, dtype) for dtype, blocks in on_host.items()),
            *(_Lot(blocks, kind) for kind, blocks in others.items()),
        ]
        return [place for place, kind in enumerate(kinds) if kind is None], lots


class Pending:
    """Statistics that may still be computed on a device."""

    def __init__(self, size: int, dtype: np.dtype, absent: Sequence[int], found: Sequence[Found]) -> None:
        """Stores the statistics.

        Args:
            size: The number of tensors.
            dtype: The dtype of a record.
            absent: The places of missing tensors.
            found: The computed statistics.
        """
        self._size, self._dtype, self._absent, self._found = size, dtype, absent, found
        self.scale: torch.Tensor | None = None  # a number by which the tensors are divided
        self.known: tuple[Sequence[int], np.ndarray] | None = None  # the statistics of some missing tensors

    @staticmethod
    def together(several: Sequence["Pending"]) -> np.ndarray:
        """Copies several statistics, each of different tensors, to the host, and returns them together."""
        if len(several) == 1:
            return several[0].resolve()
        stats = absent(max(each._size for each in several), several[0]._dtype)
        for each in several:
            present = np.setdiff1d(np.arange(each._size), each._absent)
            stats[present] = each.resolve()[present]
        return stats

    def resolve(self) -> np.ndarray:
        """Copies the statistics to the host, and returns them."""
        stats = np.zeros(self._size, self._dtype)
        projections, squares, bits = stats["projections"], stats["square"], stats["bits"]
        for places, *computed in self._found:
            for kept, values in zip((projections, squares, bits), computed, strict=True):
                found = values if isinstance(values, np.ndarray) else values.cpu().numpy()
                if places.are_distinct:
                    kept[places.index] = found
                else:
                    np.add.at(kept, places.index, found.astype(kept.dtype))
        bits &= BITS
        if self.scale is not None:
            projections /= float(self.scale)
            squares /= float(self.scale) ** 2
        bits[:] = stored_bits(bits, squares)
        if self._absent:
            projections[self._absent] = np.nan
            squares[self._absent] = np.nan
        if self.known is not None:
            stats[self.known[0]] = self.known[1]
        return stats


def _words(numbers: torch.Tensor) -> torch.Tensor:
    """Returns the bits of numbers as integers; a record keeps their sum mod 2**32."""
    if numbers.element_size() >= 4:
        return numbers.view(_WORDS)
    return numbers.view(_HALVES).to(_WORDS) & 0xFFFF if numbers.element_size() == 2 else numbers.view(torch.uint8)

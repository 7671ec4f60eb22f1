"""The statistics of tensors in the memory of the host: in few calls, each of which costs more than the numbers of a small tensor.

Small tensors are laid one after the other first. Then one sum over ranges of this memory gives the bits of all, and another the
squares. The product with the signs of the columns is one for all tensors that have the same, and what is left is a number for
each row and projection: they get the signs of their rows, and are summed over the rows of each tensor.
"""

import operator
from collections.abc import Sequence

import numpy as np
import torch

from samestep.common.steps.projections import PROJECTIONS
from samestep.torch_impl.recording.statistics.blocks import Block, Places

Found = tuple[Places, torch.Tensor | np.ndarray, torch.Tensor | np.ndarray, torch.Tensor | np.ndarray]
"""Places, projections [tensors, PROJECTIONS], square norms, and sums of bits as int32."""
_DTYPES = (torch.float32, torch.float64)  # before float64 mode renames them
_WORDS = torch.int32
_WORD_BYTES = 4
_TINY, _SMALL = 2**11, 2**15
"""Numbers of one block. Of a tiny one, such as a bias, each number is a row of its own. A small one is laid beside others."""
_BESIDE = 2**17
"""Numbers that are laid one after the other: they stay in the cache."""
_SHAPE = operator.attrgetter("shape")
_NARROW = 8
"""Fewer columns are not worth a product of their own."""


def is_of_host(dtype: torch.dtype, device: torch.device) -> bool:
    """Returns whether numbers are in the memory of the host, and of a dtype that is not cast.

    Args:
        dtype: Their dtype.
        device: Where they are.
    """
    return device.type == "cpu" and dtype in _DTYPES


def is_for_host(block: Block) -> bool:
    """Returns whether this way is the quickest for a block in the memory of the host.

    Args:
        block: It.
    """
    return _is_tiny(block) or block.shape[1] >= _NARROW


def _is_tiny(block: Block) -> bool:
    return block.size <= _TINY


class HostLot:
    """The blocks of one dtype that are in the memory of the host."""

    def __init__(self, blocks: Sequence[Block], whole: Sequence[bool], dtype: torch.dtype) -> None:
        """Plans how they are computed.

        Args:
            blocks: The blocks.
            whole: Whether each tensor is one block.
            dtype: That of the tensors.
        """
        ordered = sorted(blocks, key=lambda each: (each.size > _SMALL, not _is_tiny(each), id(each.columns)))
        self._places = Places(ordered)
        self._rows = _Rows(ordered, dtype)
        beside, alone = list[list[Block]](), list[Block]()
        for each in ordered:
            if each.size > _SMALL:
                alone.append(each)
            elif beside and sum(other.size for other in beside[-1]) + each.size <= _BESIDE:
                beside[-1].append(each)
            else:
                beside.append([each])
        self._beside = [_Beside(several, whole, self._rows) for several in beside]
        self._alone = [_Alone(each, whole, self._rows) for each in alone]
        self._num_beside = len(ordered) - len(alone)
        self._squares = torch.empty(len(alone), dtype=dtype)
        self._bits = torch.empty(len(alone), dtype=_WORDS)
        self._outs = [*zip(self._squares.unbind(), self._bits.unbind(), strict=True)]

    def __call__(self, values: Sequence[torch.Tensor | None]) -> Found:
        """Computes their statistics.

        Args:
            values: All tensors.
        """
        squares, bits = list[np.ndarray](), list[np.ndarray]()
        for several in self._beside:
            square, words = several(values)
            squares.append(square)
            bits.append(words)
        for each, (square, words) in zip(self._alone, self._outs, strict=True):
            each(values, square, words)
        squares.append(self._squares.numpy())
        bits.append(self._bits.numpy())
        return self._places, self._rows.projections(), np.concatenate(squares), np.concatenate(bits)


class _Rows:
    """A number for each row of each block and projection, in one piece of memory."""

    def __init__(self, blocks: Sequence[Block], dtype: torch.dtype) -> None:
        sizes = [each.size if _is_tiny(each) else each.shape[0] for each in blocks]
        signs = [each.flat_signs() if _is_tiny(each) else each.rows.values for each in blocks]
        ends = np.cumsum([0, *sizes])
        self._starts = ends[:-1]
        self.numbers = torch.empty(PROJECTIONS, int(ends[-1]), dtype=dtype)
        self._numbers = self.numbers.numpy()
        self._signs = np.concatenate(signs, axis=1).astype(self._numbers.dtype, copy=False)
        self._ranges = {id(each): (int(a), int(b)) for each, a, b in zip(blocks, ends[:-1], ends[1:], strict=True)}

    def of(self, first: Block, last: Block) -> torch.Tensor:
        """Returns the rows of neighbours, [PROJECTIONS, rows]."""
        return self.numbers[:, self._ranges[id(first)][0] : self._ranges[id(last)][1]]

    def projections(self) -> np.ndarray:
        """Returns the projections, once the rows are multiplied with the signs of the columns."""
        np.multiply(self._numbers, self._signs, out=self._numbers)
        return np.add.reduceat(self._numbers, self._starts, axis=1).T


class _Beside:
    """Small blocks that are laid one after the other."""

    def __init__(self, blocks: Sequence[Block], whole: Sequence[bool], rows: _Rows) -> None:
        ends = np.cumsum([0, *(each.size for each in blocks)])
        self._starts = ends[:-1]
        self._memory = torch.empty(int(ends[-1]), dtype=rows.numbers.dtype)
        self._numbers, self._words = self._memory.numpy(), self._memory.view(_WORDS).numpy()
        self._squares = np.empty_like(self._numbers)
        self._word_starts = self._starts * (self._memory.element_size() // _WORD_BYTES)
        self._places = [each.place for each in blocks]
        self._cuts = [None if whole[each.place] else slice(each.start, each.end) for each in blocks]
        self._blocks, self._views, self._shapes = blocks, list[torch.Tensor](), list[torch.Size]()
        tiny = [each for each in blocks if _is_tiny(each)]
        groups = dict[int, list[Block]]()
        for each in blocks[len(tiny) :]:
            groups.setdefault(id(each.columns), []).append(each)
        end = sum(each.size for each in tiny)
        self._tiny = (rows.of(tiny[0], tiny[-1]), self._memory[:end]) if tiny else None
        self._groups = list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]()
        for group in groups.values():
            start, end = end, end + sum(each.size for each in group)
            columns = group[0].columns.on(rows.numbers.dtype, self._memory.device)
            matrix = self._memory[start:end].view(-1, columns.shape[1])
            self._groups.append((columns, matrix.t(), rows.of(group[0], group[-1])))

    def __call__(self, values: Sequence[torch.Tensor | None]) -> tuple[np.ndarray, np.ndarray]:
        parts = [_part(values[place], cut) for place, cut in zip(self._places, self._cuts, strict=True)]
        shapes = list(map(_SHAPE, parts))
        if shapes != self._shapes:
            lain = self._memory.split([each.size for each in self._blocks])
            self._views = [each.view(shape) for each, shape in zip(lain, shapes, strict=True)]
            self._shapes = shapes
        torch._foreach_copy_(self._views, parts)
        if self._tiny is not None:
            rows, numbers = self._tiny
            rows.copy_(numbers)
        for columns, turned, rows in self._groups:
            torch.mm(columns, turned, out=rows)
        return (
            np.add.reduceat(np.square(self._numbers, out=self._squares), self._starts),
            np.add.reduceat(self._words, self._word_starts, dtype=np.int32),
        )


class _Alone:
    """A block that is large enough to be computed where it lies."""

    def __init__(self, block: Block, whole: Sequence[bool], rows: _Rows) -> None:
        self._place, self._shape = block.place, block.shape
        self._cut = None if whole[block.place] else slice(block.start, block.end)
        self._columns = block.columns.on(rows.numbers.dtype, rows.numbers.device)
        self._rows = rows.of(block, block)

    def __call__(self, values: Sequence[torch.Tensor | None], square: torch.Tensor, bits: torch.Tensor) -> None:
        x = _part(values[self._place], self._cut).reshape(-1)  # is in the cache for all three
        torch.sum(x.view(_WORDS), 0, dtype=_WORDS, out=bits)
        torch.dot(x, x, out=square)
        torch.mm(self._columns, x.view(self._shape).t(), out=self._rows)  # `out` also keeps autocast away


def _part(value: torch.Tensor | None, cut: slice | None) -> torch.Tensor:
    assert value is not None
    return value if cut is None else value.reshape(-1)[cut]

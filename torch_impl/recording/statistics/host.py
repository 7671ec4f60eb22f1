"""The statistics of tensors in the memory of the host, where a call costs more than the numbers of a small tensor.

Large tensors are cut into chunks of some rows that stay in the cache while they are read three times: for their bits, their
squares, and the product with the signs of the longer side of the chunk. Products this small are quicker in NumPy's BLAS than in
torch's, and wake no other threads. Tiny tensors, such as biases, are laid one after the other, and each number gets its signs.
What is left of either is short: it gets the signs of the other side and is summed over each chunk.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from samestep.common.steps.projections import PROJECTIONS
from samestep.torch_impl.recording.statistics.blocks import Block, Places

Found = tuple[Places, torch.Tensor | np.ndarray, torch.Tensor | np.ndarray, torch.Tensor | np.ndarray]
"""Places, projections [tensors, PROJECTIONS], square norms, and sums of bits as int32."""
_DTYPES = (torch.float32, torch.float64)  # before float64 mode renames them
_HOST = torch.device("cpu")
_WORDS = np.int32
_TINY, _CHUNK = 2**11, 2**15
"""Numbers of a tiny block, at most, and of a chunk of a larger one. OpenBLAS computes products of a chunk with one thread."""
_ROWS = 2**9
"""Rows of a chunk, at most: their sums round as often."""


def is_of_host(dtype: torch.dtype, device: torch.device) -> bool:
    """Returns whether numbers are in the memory of the host, and of a dtype that is not cast.

    Args:
        dtype: Their dtype.
        device: Where they are.
    """
    return device.type == "cpu" and dtype in _DTYPES


class HostLot:
    """The blocks of one dtype that are in the memory of the host."""

    def __init__(self, blocks: Sequence[Block], whole: Sequence[bool], dtype: torch.dtype) -> None:
        """Plans how they are computed.

        Args:
            blocks: The blocks.
            whole: Whether each tensor is one block.
            dtype: That of the tensors.
        """
        tiny = [each for each in blocks if each.size <= _TINY]
        large = [each for each in blocks if each.size > _TINY]
        self._places = Places([*tiny, *large])
        self._tiny = [_Tiny(tiny, whole, dtype)] if tiny else []
        self._large = [_Large(large, whole, dtype)] if large else []

    def __call__(self, values: Sequence[torch.Tensor | None]) -> Found:
        """Computes their statistics.

        Args:
            values: All tensors.
        """
        with np.errstate(all="ignore"):  # a gradient may be infinite
            found = [each(values) for each in (*self._tiny, *self._large)]
        return self._places, *(each[0] if len(each) == 1 else np.concatenate(each) for each in zip(*found, strict=True))


class _Tiny:
    """Tiny blocks, which are laid one after the other."""

    def __init__(self, blocks: Sequence[Block], whole: Sequence[bool], dtype: torch.dtype) -> None:
        self._places, self._cuts = [each.place for each in blocks], [_cut(each, whole) for each in blocks]
        ends = np.cumsum([0, *(each.size for each in blocks)])
        self._starts, size = ends[:-1], int(ends[-1])
        self._signs = np.concatenate([each.flat_signs() for each in blocks], axis=1)
        self._numbers = torch.empty(size, dtype=dtype).numpy()
        self._words = self._numbers.view(_WORDS)
        self._word_starts = self._starts * (len(self._words) // size)
        self._squares, self._signed = np.empty_like(self._numbers), np.empty((PROJECTIONS, size), self._numbers.dtype)

    def __call__(self, values: Sequence[torch.Tensor | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        np.concatenate(list(map(_part, map(values.__getitem__, self._places), self._cuts)), out=self._numbers)
        np.multiply(self._numbers, self._signs, out=self._signed)
        return (
            np.add.reduceat(self._signed, self._starts, axis=1).T,
            np.add.reduceat(np.square(self._numbers, out=self._squares), self._starts),
            np.add.reduceat(self._words, self._word_starts, dtype=_WORDS),
        )


class _Large:
    """Larger blocks, which are computed where they lie, in chunks."""

    def __init__(self, blocks: Sequence[Block], whole: Sequence[bool], dtype: torch.dtype) -> None:
        chunks = [[_Chunk(block, *each, dtype) for each in _rectangles(block)] for block in blocks]
        all_chunks = [each for own in chunks for each in own]
        self._firsts = np.cumsum([0, *(len(own) for own in chunks[:-1])])
        self._signs = np.concatenate([each.others.ravel() for each in all_chunks])
        self._starts = np.cumsum([0, *(each.others.shape[1] for each in all_chunks for _ in range(PROJECTIONS))])[:-1]
        self._numbers = torch.empty(len(self._signs), dtype=dtype).numpy()
        self._squares, self._bits = np.empty(len(all_chunks), self._numbers.dtype), np.empty(len(all_chunks), _WORDS)
        outs = iter(np.split(self._numbers, self._starts[PROJECTIONS::PROJECTIONS]))
        cells = iter([(self._squares[place, ...], self._bits[place, ...]) for place in range(len(all_chunks))])
        self._blocks = [
            (
                block.place,
                _cut(block, whole),
                [(*each.how, next(outs).reshape(PROJECTIONS, -1), *next(cells)) for each in own],
            )
            for block, own in zip(blocks, chunks, strict=True)
        ]

    def __call__(self, values: Sequence[torch.Tensor | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dot, add = np.dot, np.add.reduce
        for place, cut, steps in self._blocks:
            numbers = _part(values[place], cut)
            words = numbers.view(_WORDS)
            width = len(words) // len(numbers)
            for start, end, shape, is_turned, signs, out, square, bits in steps:
                x = numbers[start:end]
                add(words[start * width : end * width], out=bits)  # from here on the numbers are in the cache
                dot(x, x, out=square)
                x = x.reshape(shape)
                dot(signs, x.T if is_turned else x, out=out)
        np.multiply(self._numbers, self._signs, out=self._numbers)
        projections = np.add.reduceat(self._numbers, self._starts).reshape(-1, PROJECTIONS)  # of each chunk
        return (
            np.add.reduceat(projections, self._firsts, dtype=np.float64),  # there may be thousands
            np.add.reduceat(self._squares, self._firsts, dtype=np.float64),
            np.add.reduceat(self._bits, self._firsts),
        )


class _Chunk:
    """A rectangle of a block: where it lies, and its signs."""

    def __init__(self, block: Block, row: int, rows: int, column: int, columns: int, dtype: torch.dtype) -> None:
        start, is_turned = row * block.shape[1] + column, rows < columns
        of_rows = block.rows.on(dtype, _HOST).numpy()[:, row : row + rows]
        of_columns = block.columns.on(dtype, _HOST).numpy()[:, column : column + columns]
        longer, self.others = (of_columns, of_rows) if is_turned else (of_rows, of_columns)
        self.how = start, start + rows * columns, (rows, columns), is_turned, longer


def _rectangles(block: Block) -> Iterator[tuple[int, int, int, int]]:
    """Yields the first row, rows, first column and columns of each chunk of a block; part of a row lies in one piece as well."""
    rows, columns = block.shape
    height, width = min(_ROWS, max(1, _CHUNK // columns)), min(columns, _CHUNK)
    for row in range(0, rows, height):
        for column in range(0, columns, width):
            yield row, min(height, rows - row), column, min(width, columns - column)


def _cut(block: Block, whole: Sequence[bool]) -> slice | None:
    return None if whole[block.place] else slice(block.start, block.end)


def _part(value: torch.Tensor | None, cut: slice | None) -> np.ndarray:
    """Returns the numbers of a tensor as one row, or a range of them."""
    assert value is not None
    flat = value.detach().numpy().reshape(-1)
    return flat if cut is None else flat[cut]

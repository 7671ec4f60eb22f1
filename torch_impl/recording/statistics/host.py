"""Computes the statistics of tensors in host memory, where a call costs more than the work on a small tensor.

Large tensors are cut into spans that stay in the cache while they are read three times: for their bits, their squares, and the
products of chunks of some rows with the signs of the chunk's longer side. Products this small are faster in NumPy's BLAS than in
torch's, and wake no other threads. The product with a chunk is short; it is multiplied with the signs of the other side and
summed. Tiny tensors, such as biases, are concatenated and projected in one product.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from samestep.common.steps.projections import PROJECTIONS
from samestep.torch_impl.recording.statistics.blocks import Block, Places, line

Found = tuple[Places, torch.Tensor | np.ndarray, torch.Tensor | np.ndarray, torch.Tensor | np.ndarray]
"""Places, projections [tensors, PROJECTIONS], square norms, and sums of bits as int32."""
_DTYPES = (torch.float32, torch.float64)  # before float64 mode renames them
_HOST = torch.device("cpu")
_WORDS = np.int32
_TINY, _CHUNK = 2**11, 2**15
"""The most numbers in a tiny block, and in a chunk of a larger block; OpenBLAS uses one thread for the product of a chunk."""
_SPAN_BYTES = 2**18
"""The bytes of the chunks whose bits and squares are summed at once."""
_ROWS = 2**9
"""The most rows of a chunk, which is how often a sum over rows is rounded."""


def is_of_host(dtype: torch.dtype, device: torch.device) -> bool:
    """Returns whether numbers are in host memory and have a dtype that needs no cast.

    Args:
        dtype: The dtype of the numbers.
        device: The device of the numbers.
    """
    return device.type == "cpu" and dtype in _DTYPES


class HostLot:
    """The blocks of one dtype that are in host memory."""

    def __init__(self, blocks: Sequence[Block], dtype: torch.dtype) -> None:
        """Plans how the blocks are computed.

        Args:
            blocks: The blocks.
            dtype: The dtype of the tensors.
        """
        groups: dict[tuple[int, int], list[Block]] = {}
        for each in blocks:
            if each.size <= _TINY:
                groups.setdefault((id(each.rows), id(each.columns)), []).append(each)
        large = [each for each in blocks if each.size > _TINY]
        wide, tall = ([each for each in large if _is_wide(each) == is_wide] for is_wide in (True, False))
        self._places = Places([*(each for group in groups.values() for each in group), *wide, *tall])
        self._parts: list[_Tiny | _Large] = [_Tiny([*groups.values()], dtype)] if groups else []
        self._parts += [_Large(each, dtype) for each in (wide, tall) if each]

    def __call__(self, values: Sequence[torch.Tensor | None]) -> Found:
        """Computes the statistics of the blocks.

        Args:
            values: All tensors.
        """
        with np.errstate(all="ignore"):  # a gradient may be infinite
            found = [each(values) for each in self._parts]
        return self._places, *map(np.concatenate, zip(*found, strict=True))  # pyrefly: ignore[bad-return]


class _Tiny:
    """Tiny blocks, which are concatenated; those with the same signs are the rows of one matrix."""

    def __init__(self, groups: Sequence[Sequence[Block]], dtype: torch.dtype) -> None:
        blocks = [each for group in groups for each in group]
        self._members = [(each.place, each.cut) for each in blocks]
        ends = np.cumsum([0, *(each.size for each in blocks)])
        self._starts, size = ends[:-1], int(ends[-1])
        self._given, self._wide = torch.empty(size, dtype=dtype), np.empty(size)
        self._numbers = self._given.numpy()
        self._words = self._numbers.view(_WORDS)
        self._word_starts = self._starts * (len(self._words) // size)
        self._projections, lasts = np.empty((len(blocks), PROJECTIONS)), np.cumsum([len(each) for each in groups])
        self._products = [
            (
                self._wide[ends[last - len(group)] : ends[last]].reshape(len(group), -1),
                group[0].flat_signs().T.astype(np.float64, "C"),
                self._projections[last - len(group) : last],
            )
            for group, last in zip(groups, lasts, strict=True)
        ]

    def __call__(self, values: Sequence[torch.Tensor | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        torch.cat([line(values[place], cut) for place, cut in self._members], out=self._given)
        self._wide[...] = self._numbers  # in float32, each of these many products would round
        for numbers, signs, projections in self._products:
            np.dot(numbers, signs, out=projections)
        return (
            self._projections,
            np.add.reduceat(np.square(self._wide, out=self._wide), self._starts),
            np.add.reduceat(self._words, self._word_starts, dtype=_WORDS),
        )


class _Large:
    """Larger blocks, which are computed without a copy, in spans of some chunks. Either all are wide or none is."""

    def __init__(self, blocks: Sequence[Block], dtype: torch.dtype) -> None:
        is_wide = _is_wide(blocks[0])
        chunks = [[_Chunk(block, *each, dtype, is_wide) for each in _rectangles(block)] for block in blocks]
        self._firsts = np.cumsum([0, *(len(own) for own in chunks[:-1])])
        others, sums = [each.others for own in chunks for each in own], 1 if is_wide else PROJECTIONS
        ends = np.cumsum([0, *(each.size for each in others)])
        self._starts = np.concatenate(
            [np.arange(*each, (each[1] - each[0]) // sums) for each in itertools.pairwise(ends)]
        )
        self._signs = np.concatenate([each.ravel() for each in others])
        self._numbers = torch.empty(len(self._signs), dtype=dtype).numpy()
        parts = zip(np.split(self._numbers, ends[1:-1]), others, strict=True)
        outs = (part.reshape(each.shape) for part, each in parts)
        self._summed = self._numbers
        if is_wide:
            self._starts, self._summed = self._starts // PROJECTIONS, self._numbers.reshape(-1, PROJECTIONS)
        spans = [_spans(own, dtype.itemsize) for own in chunks]
        self._first_spans, size = np.cumsum([0, *map(len, spans[:-1])]), sum(map(len, spans))
        self._squares, self._bits = np.empty(size, self._numbers.dtype), np.empty(size, _WORDS)
        cells = iter([(self._squares[place, ...], self._bits[place, ...]) for place in range(size)])
        self._blocks = [
            (
                block.place,
                block.cut,
                [
                    (slice(span[0].start, span[-1].end), *next(cells), [each.product(next(outs)) for each in span])
                    for span in own
                ],
            )
            for block, own in zip(blocks, spans, strict=True)
        ]

    def __call__(self, values: Sequence[torch.Tensor | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dot, add = np.dot, np.add.reduce
        for place, cut, spans in self._blocks:
            numbers = line(values[place], cut).detach().numpy()
            for span, square, bits, steps in spans:
                x = numbers[span]
                add(x.view(_WORDS), out=bits)  # the numbers are now in the cache
                dot(x, x, out=square)
                for chunk, shape, is_second, signs, out in steps:
                    x = numbers[chunk].reshape(shape)
                    dot(x, signs, out=out) if is_second else dot(signs, x, out=out)
        np.multiply(self._numbers, self._signs, out=self._numbers)
        projections = np.add.reduceat(self._summed, self._starts).reshape(-1, PROJECTIONS)  # of each chunk
        return (
            np.add.reduceat(projections, self._firsts, dtype=np.float64),  # there may be thousands of chunks
            np.add.reduceat(self._squares, self._first_spans, dtype=np.float64),
            np.add.reduceat(self._bits, self._first_spans),
        )


class _Chunk:
    """A rectangle of a block, with its range and its signs."""

    def __init__(
        self, block: Block, row: int, rows: int, column: int, columns: int, dtype: torch.dtype, is_wide: bool
    ) -> None:
        self.start = row * block.shape[1] + column
        self.end, self._shape = self.start + rows * columns, (rows, columns)
        of_rows = block.rows.on(dtype, _HOST).numpy()[:, row : row + rows]
        of_columns = block.columns.on(dtype, _HOST).numpy()[:, column : column + columns]
        self._longer, self.others = (of_columns, of_rows.T) if is_wide else (of_rows, of_columns)
        self._is_wide = is_wide

    def product(self, out: np.ndarray) -> tuple[slice, tuple[int, ...], bool, np.ndarray, np.ndarray]:
        """Returns the range, the shape, whether the signs are the second factor, the signs, and the output of the product."""
        chunk = slice(self.start, self.end)
        if not self._is_wide:
            return chunk, self._shape, False, self._longer, out
        if self._shape[0] == 1:  # otherwise NumPy would copy the signs each time
            return chunk, self._shape[1:], False, self._longer, out[0]
        return chunk, self._shape, True, self._longer.T, out


def _is_wide(block: Block) -> bool:
    """Returns whether the chunks of a block have more columns than rows; their products are then faster in the other order."""
    _, rows, _, columns = next(_rectangles(block))
    return rows < columns


def _rectangles(block: Block) -> Iterator[tuple[int, int, int, int]]:
    """Yields the first row, number of rows, first column and number of columns of each chunk, which is contiguous."""
    rows, columns = block.shape
    height, width = min(_ROWS, max(1, _CHUNK // columns)), min(columns, _CHUNK)
    for row in range(0, rows, height):
        for column in range(0, columns, width):
            yield row, min(height, rows - row), column, min(width, columns - column)


def _spans(chunks: Sequence[_Chunk], itemsize: int) -> list[Sequence[_Chunk]]:
    """Returns the chunks of a block in spans that stay in the cache."""
    together = max(1, _SPAN_BYTES // itemsize // (chunks[0].end - chunks[0].start))
    return [chunks[first : first + together] for first in range(0, len(chunks), together)]

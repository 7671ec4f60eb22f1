"""The rectangles of a tensor's matrix that one process holds, and the signs of their rows and columns."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from samestep.common.steps.projections import PROJECTIONS, Piece, as_matrix, blocks, signs

Kind = tuple[torch.dtype, torch.device]


class Signs:
    """The signs of rows or columns, on the devices on which they are needed."""

    def __init__(self, values: np.ndarray) -> None:
        """Takes them.

        Args:
            values: [numbers, PROJECTIONS].
        """
        self.values = np.ascontiguousarray(values.T)
        self._on: dict[Kind, torch.Tensor] = {}

    def on(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Returns them, [PROJECTIONS, numbers].

        Args:
            dtype: The type of what they are multiplied with.
            device: Where that is.
        """
        if (dtype, device) not in self._on:
            self._on[dtype, device] = torch.from_numpy(self.values).to(device=device, dtype=dtype)
        return self._on[dtype, device]


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """A rectangle of a tensor's matrix that one process holds.

    Attributes:
        place: The place of the tensor.
        cut: The range of the piece that it is; None if it is all of it.
        rows: The signs of its rows.
        columns: Those of its columns.
    """

    place: int
    cut: slice | None
    rows: Signs
    columns: Signs

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows.values.shape[1], self.columns.values.shape[1]

    @property
    def size(self) -> int:
        """The number of elements in the block."""
        return math.prod(self.shape)

    def flat_signs(self) -> np.ndarray:
        """Returns the signs of all numbers, [PROJECTIONS, numbers]."""
        return (self.rows.values[:, :, None] * self.columns.values[:, None]).reshape(PROJECTIONS, -1)


class Places:
    """The places of the tensors of some blocks."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        """Takes them, in the order of the blocks."""
        self.index = np.array([each.place for each in blocks])
        self.are_distinct = len(set(self.index.tolist())) == len(blocks)  # else a piece is of several blocks


def blocks_of(place: int, piece: Piece, shared: dict[tuple, Signs]) -> list[Block]:
    """Returns the blocks of a piece; equal rows or columns share their signs.

    Args:
        place: The place of its tensor among all.
        piece: Where its numbers are in the tensor.
        shared: The signs that are there already, by dimension, start and size.
    """

    def shared_signs(dim: int, start: int, size: int) -> Signs:
        return kept((dim, start, size), lambda: signs(dim, start, size))

    def kept(key: tuple, values: Callable[[], np.ndarray]) -> Signs:
        if key not in shared:
            shared[key] = Signs(values())
        return shared[key]

    if 0 in piece.size:
        return []
    if not piece.is_flat:
        row, rows = (piece.start[0], piece.size[0]) if piece.shape else (0, 1)
        inner = tuple(zip(piece.start[1:], piece.size[1:], strict=True))
        if piece.size[1:] == piece.shape[1:]:
            columns = shared_signs(1, 0, as_matrix(piece.shape)[1])
        else:
            columns = kept((piece.shape[1:], inner), lambda: _of_columns(piece, inner))
        return [Block(place, None, shared_signs(0, row, rows), columns)]
    found, end = list[Block](), 0
    rectangles = blocks(piece)
    for row, rows, column, columns in rectangles:
        start, end = end, end + rows * columns
        cut = slice(start, end) if len(rectangles) > 1 else None
        found.append(Block(place, cut, shared_signs(0, row, rows), shared_signs(1, column, columns)))
    return found


def line(value: torch.Tensor | None, cut: slice | None) -> torch.Tensor:
    """Returns the numbers of a tensor as one row, or a range of them.

    Args:
        value: The tensor.
        cut: The range, if it is not all.
    """
    assert value is not None
    flat = value if value.ndim == 1 else value.reshape(-1)
    return flat if cut is None else flat[cut]


def _of_columns(piece: Piece, inner: Sequence[tuple[int, int]]) -> np.ndarray:
    """Returns the signs of the columns that a piece has, which need not be neighbours."""
    _, columns = as_matrix(piece.shape)
    index = np.arange(columns).reshape(piece.shape[1:])[tuple(slice(start, start + size) for start, size in inner)]
    return signs(1, 0, columns)[index.ravel()]

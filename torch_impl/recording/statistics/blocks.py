"""The rectangles of a tensor's matrix that this process holds, and the signs of their rows and columns."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from samestep.common.steps.projections import PROJECTIONS, Piece, as_matrix, blocks, signs

Kind = tuple[torch.dtype, torch.device]


class Signs:
    """The signs of rows or columns, on all devices that need them."""

    def __init__(self, values: np.ndarray) -> None:
        """Stores the signs.

        Args:
            values: The signs, [numbers, PROJECTIONS].
        """
        self.values = np.ascontiguousarray(values.T)
        self._on: dict[Kind, torch.Tensor] = {}

    def on(self, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Returns the signs, [PROJECTIONS, numbers].

        Args:
            dtype: The dtype of the numbers with which they are multiplied.
            device: The device of these numbers.
        """
        if (dtype, device) not in self._on:
            self._on[dtype, device] = torch.from_numpy(self.values).to(device=device, dtype=dtype)
        return self._on[dtype, device]


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """A rectangle of a tensor's matrix that this process holds.

    Attributes:
        place: The place of the tensor.
        cut: The range of the block in the piece; None if it is the whole piece.
        rows: The signs of the rows.
        columns: The signs of the columns.
    """

    place: int
    cut: slice | None
    rows: Signs
    columns: Signs

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        return self.rows.values.shape[1], self.columns.values.shape[1]

    @property
    def size(self) -> int:
        """The number of elements in the block."""
        return math.prod(self.shape)

    def flat_signs(self) -> np.ndarray:
        """Returns the signs of all numbers, [PROJECTIONS, numbers]."""
        return (self.rows.values[:, :, None] * self.columns.values[:, None]).reshape(PROJECTIONS, -1)


class Places:
    """The places of the tensors to which blocks belong."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        """Stores the places, in the order of the blocks."""
        self.index = np.array([each.place for each in blocks])
        self.are_distinct = len(set(self.index.tolist())) == len(blocks)  # otherwise a piece has several blocks


def blocks_of(place: int, piece: Piece, shared: dict[tuple, Signs]) -> list[Block]:
    """Returns the blocks of a piece; equal rows or columns share their signs.

    Args:
        place: The place of the tensor among all tensors.
        piece: The piece.
        shared: The existing signs, by dim, start and size; new ones are added.
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
    """Returns the numbers of a tensor, or a range of them, as one row.

    Args:
        value: The tensor.
        cut: The range; None stands for the whole tensor.
    """
    assert value is not None
    flat = value if value.ndim == 1 else value.reshape(-1)
    return flat if cut is None else flat[cut]


def _of_columns(piece: Piece, inner: Sequence[tuple[int, int]]) -> np.ndarray:
    """Returns the signs of the columns of a piece, which need not be adjacent."""
    _, columns = as_matrix(piece.shape)
    index = np.arange(columns).reshape(piece.shape[1:])[tuple(slice(start, start + size) for start, size in inner)]
    return signs(1, 0, columns)[index.ravel()]

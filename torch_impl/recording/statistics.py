"""What a record keeps of tensors, computed in torch: the mirror of common/steps/projections.py, for many tensors at once.

Tensors of one shape are stacked while they are small: a call costs more than the numbers in it. Nothing is brought to the host
until `resolve`, so a GPU is not waited for within a step.
"""

from collections.abc import Sequence

import numpy as np
import torch

from samestep.common.steps.projections import PROJECTIONS, Piece, as_matrix, blocks, signs
from samestep.common.steps.record import stats_dtype

_STACKED_NUMBERS = 2**16
"""Of one tensor. Beyond that, stacking costs more than it saves."""
_SINGLE, _DOUBLE = torch.float32, torch.float64  # before float64 mode renames them
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class _Block:
    """A rectangle of a tensor's matrix that one process holds, and its signs."""

    def __init__(self, offset: int, shape: tuple[int, int], left: np.ndarray, right: np.ndarray) -> None:
        """Takes the signs.

        Args:
            offset: Of its first number in the piece.
            shape: Rows and columns.
            left: Of its rows, [rows, PROJECTIONS].
            right: Of its columns.
        """
        self.offset, self.shape = offset, shape
        self._signs = left.T.copy(), right.T.copy()
        self._on: dict[tuple[torch.device, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}

    def signs(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The signs as tensors [PROJECTIONS, rows] and [PROJECTIONS, columns], on the device and in the dtype of another."""
        key = like.device, like.dtype
        if key not in self._on:
            left, right = (torch.from_numpy(each).to(device=like.device, dtype=like.dtype) for each in self._signs)
            self._on[key] = left, right
        return self._on[key]

    def project(self, x_NRC: torch.Tensor) -> torch.Tensor:
        """Projects several blocks at once: [N, rows, columns] -> [N, PROJECTIONS]."""
        left_KR, right_KC = self.signs(x_NRC)
        if self.shape[1] == 1:
            return (x_NRC[:, :, 0] @ left_KR.T) * right_KC[:, 0]
        if self.shape[0] == 1:
            return (x_NRC[:, 0] @ right_KC.T) * left_KR[:, 0]
        return (torch.matmul(left_KR, x_NRC) * right_KC).sum(2)


class Statistics:
    """Computes the statistics of a fixed list of tensors, as often as they change."""

    def __init__(self, pieces: Sequence[Piece], is_float64: bool) -> None:
        """Makes the signs of all pieces; pieces that are alike share them.

        Args:
            pieces: What this process holds of each tensor.
            is_float64: Whether the record keeps float64.
        """
        made: dict[Piece, list[_Block]] = {}
        shared: dict[tuple, _Block] = {}
        for piece in pieces:
            if piece not in made:
                made[piece] = _blocks(piece, shared)
        self._blocks, self._dtype = [made[piece] for piece in pieces], stats_dtype(is_float64)

    def __call__(self, values: Sequence[torch.Tensor | None]) -> "Pending":
        """Starts to compute the statistics.

        Args:
            values: The pieces, in the order of the constructor; None for those that are not there.
        """
        groups: dict[tuple, list[tuple[int, torch.Tensor]]] = {}
        blocks_of: dict[tuple, _Block] = {}
        for place, (value, parts) in enumerate(zip(values, self._blocks, strict=True)):
            if value is None:
                continue
            for block in parts:
                rows, columns = block.shape
                flat = value if len(parts) == 1 else value.reshape(-1)[block.offset : block.offset + rows * columns]
                key = (id(block), value.device, value.dtype)
                key += () if rows * columns <= _STACKED_NUMBERS else (place,)
                blocks_of[key] = block
                groups.setdefault(key, []).append((place, flat.reshape(rows, columns)))
        absent = [place for place, value in enumerate(values) if value is None]
        return Pending(
            len(values), self._dtype, absent, [_compute(blocks_of[key], each) for key, each in groups.items()]
        )


class Pending:
    """Statistics that may still be computed on a device."""

    def __init__(
        self, size: int, dtype: np.dtype, absent: Sequence[int], found: Sequence[tuple[list[int], torch.Tensor, object]]
    ) -> None:
        """Holds them.

        Args:
            size: The number of tensors.
            dtype: Of a record.
            absent: The places of tensors that are not there.
            found: Places, [N, PROJECTIONS + 1] with the square at the end, and the sums of bits.
        """
        self._size, self._dtype, self._absent, self._found = size, dtype, absent, found
        self.scale: torch.Tensor | None = None  # divides the tensors

    @staticmethod
    def together(several: Sequence["Pending"]) -> np.ndarray:
        """Brings several to the host, each of other tensors."""
        first, *others = several
        stats = first.resolve()
        for other in others:
            present = np.setdiff1d(np.arange(len(stats)), other._absent)
            stats[present] = other.resolve()[present]
        return stats

    def resolve(self) -> np.ndarray:
        """Brings them to the host."""
        scale = 1.0 if self.scale is None else float(self.scale)
        stats = np.zeros(self._size, self._dtype)
        projections, squares = np.zeros((self._size, PROJECTIONS)), np.zeros(self._size)
        for places, numbers, bits in self._found:
            values = numbers.cpu().numpy().astype(np.float64)
            projections[places] += values[:, :-1] / scale
            squares[places] += values[:, -1] / scale**2
            stats["bits"][places] += bits.cpu().numpy().view(np.uint64) if isinstance(bits, torch.Tensor) else bits
        stats["projections"], stats["square"] = projections, squares
        stats["projections"][self._absent] = stats["square"][self._absent] = np.nan
        return stats


def _compute(block: _Block, members: Sequence[tuple[int, torch.Tensor]]) -> tuple[list[int], torch.Tensor, object]:
    x_NRC = torch.stack([each for _, each in members]) if len(members) > 1 else members[0][1][None]
    bits = _sum_of_bits(x_NRC)
    if x_NRC.dtype not in (_SINGLE, _DOUBLE):
        x_NRC = x_NRC.to(_SINGLE)
    square_N = torch.linalg.vector_norm(x_NRC, dim=(1, 2)).square()
    return [place for place, _ in members], torch.cat([block.project(x_NRC), square_N[:, None]], 1), bits


def _sum_of_bits(x_NRC: torch.Tensor) -> object:
    """The sum of bits of each tensor: uint64 [N], or int64 [N] on a device."""
    size, num = x_NRC.element_size(), len(x_NRC)
    ints = x_NRC.contiguous().view(num, -1).view(_INTS[size])
    if ints.device.type == "cpu":  # NumPy sums unsigned numbers four times as fast as torch masks them
        return ints.numpy().view(_WORDS[size]).sum(axis=1, dtype=np.uint64)
    return ints.to(torch.int64).bitwise_and_(2 ** (8 * size) - 1 if size < 8 else -1).sum(1)


def _blocks(piece: Piece, shared: dict[tuple, _Block]) -> list[_Block]:
    if piece.is_flat:
        parts = blocks(piece)
        keys = [(row, rows, column, columns) for row, rows, column, columns in parts]
        sides = [(signs(0, row, rows), signs(1, column, columns)) for row, rows, column, columns in parts]
    elif 0 in piece.size:
        return []
    else:
        row, rows = (piece.start[0], piece.size[0]) if piece.shape else (0, 1)
        inner = tuple(zip(piece.start[1:], piece.size[1:], strict=True))
        keys = [(row, rows, piece.shape[1:], inner)]
        sides = [(signs(0, row, rows), _of_columns(piece, inner))]
    found, offset = [], 0
    for key, (left, right) in zip(keys, sides, strict=True):
        shape = len(left), len(right)
        found.append(shared.setdefault((offset, key), _Block(offset, shape, left, right)))
        offset += shape[0] * shape[1]
    return found


def _of_columns(piece: Piece, inner: Sequence[tuple[int, int]]) -> np.ndarray:
    """The signs of the columns that a piece has, which need not be neighbours."""
    _, columns = as_matrix(piece.shape)
    every = signs(1, 0, columns)
    if piece.size[1:] == piece.shape[1:]:
        return every
    index = np.arange(columns).reshape(piece.shape[1:])[tuple(slice(start, start + size) for start, size in inner)]
    return every[index.ravel()]

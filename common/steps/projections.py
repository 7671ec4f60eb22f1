"""What a record keeps of a tensor: eight projections, the squared norm and the sum of its bits, which all add up over shards.

A projection is the sum of all numbers, each with a sign. A tensor is treated as a matrix, with its first dim as rows and all
others as columns, and the sign of number (i, j) in projection k is s(k, 0, i) s(k, 1, j), where s mixes the bits of a GLOBAL
index. So:

* a block of rows, a block of columns or a range of the flattened tensor is projected alone, and the projections of all pieces
  add up to that of the whole tensor, for any layout;
* the mean square of the projections of a difference is an unbiased estimate of its square norm, since signs of different
  numbers are uncorrelated;
* names do not matter, so parameters with different names can be compared.

References:
    Achlioptas 2003, "Database-friendly random projections", J. Comput. Syst. Sci. 66 (4). The mixer is the finalizer of
    MurmurHash3 (Appleby, public domain).
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

PROJECTIONS = 8
"""The number of projections of each tensor. They estimate the norm of a difference within 25 % (one standard deviation, 1 /
sqrt(2 x 8))."""

BITS = 2**32 - 1
"""A mask of the bits of a sum that are kept."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """The part of a whole tensor that a process holds.

    Attributes:
        shape: The shape of the whole tensor.
        start: The first index of the piece in each dim; for a flat piece, one index in the flattened tensor.
        size: The size of the piece in each dim; for a flat piece, one number.
        is_flat: Whether the piece is a range of the flattened tensor.
    """

    shape: tuple[int, ...]
    start: tuple[int, ...]
    size: tuple[int, ...]
    is_flat: bool = False

    @classmethod
    def whole(cls, shape: Sequence[int]) -> "Piece":
        """Returns the piece that is the whole tensor."""
        return cls(tuple(shape), (0,) * len(shape), tuple(shape))


def signs(dim: int, start: int, size: int) -> np.ndarray:
    """Returns the signs of a range of rows or columns.

    Args:
        dim: 0 for rows, 1 for columns.
        start: The first GLOBAL index.
        size: The number of rows or columns.

    Returns:
        float32 [size, PROJECTIONS] of 1 and -1.
    """
    index = np.arange(start, start + size, dtype=np.uint64)[:, None]
    salt = np.arange(1, PROJECTIONS + 1, dtype=np.uint64) * np.uint64(0x9E3779B1) + np.uint64(dim * 0x85EBCA77)
    found = mixed((index * np.uint64(0xC2B2AE3D) + salt) & np.uint64(0xFFFFFFFF))
    found ^= found >> np.uint64(16)
    return np.where(found & np.uint64(1), np.float32(1), np.float32(-1))


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Mixes the bits of 32-bit numbers, which are stored in uint64."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        numbers = ((numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
    return numbers


def as_matrix(shape: Sequence[int]) -> tuple[int, int]:
    """Returns the rows and columns of a tensor as a matrix: its first dim, and the product of the others."""
    return (shape[0], math.prod(shape[1:])) if shape else (1, 1)


def blocks(piece: Piece) -> list[tuple[int, int, int, int]]:
    """Returns the rectangles of the matrix that make up a range of the flattened tensor, in the order of its elements.

    Args:
        piece: The range.

    Returns:
        For each rectangle: its first row, number of rows, first column, number of columns.
    """
    _, columns = as_matrix(piece.shape)
    (start,), (size,) = piece.start, piece.size
    found, end = [], start + size
    while start < end:
        row, column = divmod(start, columns)
        if column == 0 and end - start >= columns:
            count = (end - start) // columns
            found.append((row, count, 0, columns))
            start += count * columns
        else:
            length = min(columns - column, end - start)
            found.append((row, 1, column, length))
            start += length
    return found


def sum_of_bits(values: np.ndarray) -> int:
    """Sums the bit patterns of all numbers mod 2**32; equal bits have equal sums, however they are sharded.

    A 64-bit number counts as two words. A device can compute a 32-bit sum without widening every number.
    """
    return int(values.ravel().view(f"u{min(values.dtype.itemsize, 4)}").sum(dtype=np.uint64)) & BITS


def stored_bits(bits: np.ndarray | np.uint64, square: np.ndarray) -> np.ndarray:
    """Returns sums of bits as they are stored for existing tensors: if the numbers are not finite, the stored sum is never 0.

    A missing tensor has NaN and a sum of 0. The bits of 1024 NaNs also add up to a multiple of 2**32, so such a sum is stored
    as 2**32.

    Args:
        bits: The sums, mod 2**32.
        square: The squared norms of the tensors.
    """
    return np.where((bits == 0) & ~np.isfinite(square), np.uint64(BITS + 1), bits)


def project_ones(shape: Sequence[int]) -> np.ndarray:
    """Projects a whole tensor of ones.

    Args:
        shape: Its shape.

    Returns:
        float64 [PROJECTIONS].
    """
    rows, columns = as_matrix(shape)
    return signs(0, 0, rows).sum(0, np.float64) * signs(1, 0, columns).sum(0, np.float64)

"""The projections of a record, stated in NumPy; the recorders are tested against it."""

import functools

import numpy as np

from samestep.common.steps.projections import Piece, as_matrix, signs

_kept_signs = functools.lru_cache(64)(signs)
"""A cached `signs`, for the few tensors that are projected repeatedly."""


def project(values: np.ndarray, piece: Piece | None = None) -> np.ndarray:
    """Projects a tensor, or a piece of one: the whole tensor with zeros in place of what the piece lacks.

    Args:
        values: The piece, of any float dtype.
        piece: The piece; by default the whole tensor.

    Returns:
        float64 [PROJECTIONS].
    """
    piece = piece or Piece.whole(values.shape)
    whole = np.zeros(piece.shape)
    place = tuple(slice(start, start + size) for start, size in zip(piece.start, piece.size, strict=True))
    (whole.reshape(-1) if piece.is_flat else whole)[place] = values
    rows, columns = as_matrix(piece.shape)
    matrix = whole.reshape(rows, columns)
    return np.einsum("ij,ik,jk->k", matrix, _kept_signs(0, 0, rows), _kept_signs(1, 0, columns))

"""What compression sends in place of gradients, as plain numbers; `common/reference/compression.py` has the algorithms."""

import math
from collections.abc import Mapping, Sequence

ITEM_BYTES: Mapping[str, int] = {"fp16": 2, "bf16": 2, "int8": 1}
"""Method -> the bytes of a number on the wire, of those that send every number."""
LARGEST = 127
"""The largest int8 that is sent; -128 is not, because the scale is symmetric."""
LEAST_COLUMN = 1e-6
"""How long a column of PowerSGD's has to be, relative to the first, to be made orthogonal and not zero."""
RESIDUAL, SUM_RESIDUAL, FACTOR = "residual", "sum_residual", "factor"
"""What a rank keeps for a parameter, as the first part of its name: of its own gradient, of the sum, and PowerSGD's Q."""


def piece_size(size: int, ranks: int) -> int:
    """The numbers of a parameter that each rank adds up, padding included.

    Args:
        size: The numbers of the parameter.
        ranks: How many ranks share them.
    """
    return -(-size // ranks)


def matrix_shape(shape: Sequence[int], rank: int) -> tuple[int, int] | None:
    """The parameter as PowerSGD sees it, a matrix whose columns are the last dim; None if its two factors were no smaller.

    Args:
        shape: Of the parameter, in the neutral layout.
        rank: The columns of each factor.

    Returns:
        Rows and columns.
    """
    rows, columns = math.prod(shape[:-1]), shape[-1] if shape else 1
    return (rows, columns) if rank * (rows + columns) < rows * columns else None

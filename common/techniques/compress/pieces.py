"""Into what a compressed exchange cuts a parameter: equal pieces that ranks add up, or a matrix with two factors."""

import math
from collections.abc import Mapping, Sequence

ITEM_BYTES: Mapping[str, int] = {"fp16": 2, "bf16": 2, "int8": 1}
"""Method -> the bytes of a number on the wire, of those that send every number."""


def piece_size(size: int, ranks: int) -> int:
    """Returns the numbers of a parameter that each rank adds up, padding included.

    Args:
        size: The numbers of the parameter.
        ranks: How many ranks share them.
    """
    return -(-size // ranks)


def matrix_shape(shape: Sequence[int], rank: int) -> tuple[int, int] | None:
    """Returns the parameter as PowerSGD sees it, a matrix whose columns are the last dim; None if two factors were no smaller.

    Args:
        shape: The shape of the parameter, in the neutral layout.
        rank: The columns of each factor.

    Returns:
        Rows and columns.
    """
    rows, columns = math.prod(shape[:-1]), shape[-1] if shape else 1
    return (rows, columns) if rank * (rows + columns) < rows * columns else None

"""How a compressed exchange cuts a parameter: into equal pieces that ranks add up, or into two factors of a matrix."""

import math
from collections.abc import Mapping, Sequence

ITEM_BYTES: Mapping[str, int] = {"fp16": 2, "bf16": 2, "int8": 1}
"""Method -> the bytes of a number on the wire, for methods that send every number."""


def piece_size(size: int, ranks: int) -> int:
    """Returns how many numbers of a parameter each rank adds up, including padding.

    Args:
        size: The numbers of the parameter.
        ranks: The number of ranks that share them.
    """
    return -(-size // ranks)


def matrix_shape(shape: Sequence[int], rank: int) -> tuple[int, int] | None:
    """Returns the shape of the matrix as which PowerSGD treats a parameter; None if its two factors would not be smaller.

    Args:
        shape: The shape of the parameter, in the neutral layout.
        rank: The columns of each factor.

    Returns:
        Its rows, and its columns, which are the last dim.
    """
    rows, columns = math.prod(shape[:-1]), shape[-1] if shape else 1
    return (rows, columns) if rank * (rows + columns) < rows * columns else None

"""The seconds of matrix products on one GPU, in tiles on all processors at once; and those of experts, whose weights are read.

References:
    NVIDIA, "Matrix Multiplication Background", 2023 (tiles and waves).
"""

import math
from collections.abc import Iterable

from samestep.common.seconds.machine import Machine
from samestep.common.workload.models.block_sizes import BlockSizes

ITEM = 2
"""The bytes of a number."""
_TILE_ROWS = 128
_TILE, _SMALL_TILE = _TILE_ROWS * 256, _TILE_ROWS * 128
_SMALL_TILE_COST = 1.3
"""The time for a number of a matrix in small tiles, as a multiple of that in large ones; chosen by fits with held-out rows."""


def moved_seconds(machine: Machine, size: float) -> float:
    """Returns the seconds that it takes to read or write bytes once.

    Args:
        machine: The machine whose memory is meant.
        size: The number of bytes.
    """
    return size / (machine.memory_bytes_per_second * machine.memory_share)


def product_seconds(tokens: float, products: Iterable[tuple[float, float]], machine: Machine) -> tuple[float, float]:
    """Returns the seconds of products with weights, forward and backward.

    Backward, each has one product of the same size for the gradient of its inputs, and one for that of its weights.

    Args:
        tokens: The number of rows of the inputs.
        products: The numbers of inputs and outputs of each product.
        machine: The machine that it runs on.
    """
    ahead = back = 0.0
    for inputs, outputs in products:
        ahead += _rounds(tokens, outputs, machine) * inputs
        back += _rounds(tokens, inputs, machine) * outputs + _rounds(inputs, outputs, machine) * tokens
    seconds = 2 / (machine.peak_flops_per_second * machine.matrix_share)
    return ahead * seconds, back * seconds


def _rounds(rows: float, columns: float, machine: Machine) -> float:
    """Returns how many numbers take this time if every processor is busy, with the better of two sizes of tiles."""
    large, small = machine.processors * _TILE, machine.processors * _SMALL_TILE
    numbers = rows * columns
    return min(math.ceil(numbers / large) * large, math.ceil(numbers / small) * small * _SMALL_TILE_COST)


def expert_seconds(shape: BlockSizes, tokens: float, ranks: int, tensor: int, machine: Machine) -> tuple[float, float]:
    """Returns the seconds of a rank's experts, forward and backward: their products run side by side, in separate tiles.

    All experts are assumed to take the same number of tokens. With few tokens each, reading their weights takes longer
    than multiplying.

    Args:
        shape: The shape of the model.
        tokens: The tokens of a rank before the exchange, each of which takes `top_k` experts.
        ranks: The number of ranks that share the experts.
        tensor: The number of ranks that share each expert.
        machine: The machine that it runs on.
    """
    here = shape.routed_experts / ranks
    of_each = tokens * shape.top_k / here
    padded = here * math.ceil(of_each / _TILE_ROWS) * _TILE_ROWS
    hidden = shape.expert_hidden
    products = ((shape.width, shape.up_of(hidden) / tensor), (hidden / tensor, shape.width))
    ahead, back = product_seconds(padded, products, machine)
    weights = moved_seconds(machine, ITEM * here * shape.mlp_params(hidden) / tensor)
    # Backward they are read for one product and written for the other.
    return max(ahead, weights), max(back, 3 * weights)

"""Compressed exchanges, stated once: the gradients and residuals of all ranks -> their sum and the new residuals.

fp16 and bf16 round twice, since a gradient is sent twice: to the rank that adds up a piece of it, and the sum back. int8 does
the same, with scales that all ranks share, and adds what rounding left out to the next gradient. PowerSGD sends two factors of
a matrix. Which rank adds up which piece makes no difference.

References:
    Vogels et al., arXiv 1905.13727, algorithms 1 and 2 (PowerSGD, error feedback).
    torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py of torch 2.13: Q is made orthogonal before it is used again,
    and the residual is what the mean lacks.
"""

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from samestep.common.program import RESIDUAL, SUM_RESIDUAL, Arrays
from samestep.common.strategy import Run
from samestep.common.techniques.compress.pieces import matrix_shape

LARGEST = 127
"""The largest int8 that is sent; -128 is not, because the scale is symmetric."""
LEAST_COLUMN = 1e-6
"""The least norm of a column of PowerSGD's factor, relative to the first column. A shorter column is set to zero instead of made
orthogonal."""
FACTOR = "factor"
"""The prefix of the name under which the first rank keeps PowerSGD's Q for a parameter."""
Ranks = Sequence[np.ndarray]
"""One array from each rank, all of one shape."""
Kept = Sequence[Mapping[str, np.ndarray]]
"""The arrays that each rank keeps for one parameter, by kind. The first rank also has those that are the same for all."""
Largest = Callable[[Ranks], Sequence[float]]
"""The values of each rank -> the largest number, as each rank receives it."""
KINDS = (RESIDUAL, SUM_RESIDUAL, FACTOR)


def initial_factor(name: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Draws the initial factor of PowerSGD, from its own random stream, in numbers that float32 can represent.

    Args:
        name: The name of the parameter.
        shape: Columns of the parameter's matrix, and rank.
        seed: The seed of the run.
    """
    stream = np.random.default_rng([seed, zlib.crc32(f"{FACTOR}/{name}".encode())])
    return stream.normal(size=shape).astype(np.float32).astype(np.float64)


def largest_of_all(values: Ranks) -> list[float]:
    """Returns the largest number of all ranks, for each of them."""
    return [max(float(np.abs(value).max()) for value in values)] * len(values)


def exchange(
    run: Run, parts: Sequence[Arrays], local: Sequence[Arrays], largest_of: Largest = largest_of_all
) -> tuple[Arrays, tuple[Arrays, ...]]:
    """Sums the gradients of all ranks by a compressed exchange.

    Args:
        run: The run with the method.
        parts: The gradients of each rank.
        local: What each rank kept from the last exchange, as in `TrainState.local`; nothing before the first one.
        largest_of: Computes the number by which each rank scales; a mutant passes another function.

    Returns:
        The sum as every rank has it, and what each rank keeps.
    """
    total: Arrays = {}
    after: tuple[Arrays, ...] = tuple({} for _ in parts)
    for name in parts[0]:
        gradients = [part[name] for part in parts]
        held = [*local, *[{} for _ in parts[len(local) :]]]  # a state file lacks ranks that keep nothing
        before = [{kind: own[f"{kind}/{name}"] for kind in KINDS if f"{kind}/{name}" in own} for own in held]
        total[name], kept = _exchange_one(run, name, gradients, before, largest_of)
        for own, new in zip(after, kept, strict=True):
            own |= {f"{kind}/{name}": value for kind, value in new.items()}
    return total, after


def _exchange_one(run: Run, name: str, gradients: Ranks, kept: Kept, largest_of: Largest) -> tuple[np.ndarray, Kept]:
    method, rank = run.techniques.compress, run.techniques.compress_rank
    if method == "int8":
        return sum_of_int8(gradients, kept, largest_of)
    if method == "powersgd" and (matrix := matrix_shape(gradients[0].shape, rank)) is not None:
        return sum_of_factors(gradients, kept, initial_factor(name, (matrix[1], rank), run.seed))
    rounded = HALVES.get(str(method), lambda values: values)  # PowerSGD does not compress it without factors
    return sum_of_halves(gradients, rounded), [{} for _ in gradients]


def fp16(values: np.ndarray) -> np.ndarray:
    """Rounds to the nearest float16, via float32 as both frameworks do."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float16).astype(values.dtype)


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounds to the nearest bfloat16, half to even: the upper half of a float32."""
    bits = values.astype(np.float32).view(np.uint32)
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return upper.view(np.float32).astype(values.dtype)


HALVES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"fp16": fp16, "bf16": bf16}


def sum_of_halves(gradients: Ranks, rounded: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Sums gradients, rounding them before the sum and the sum after it.

    Args:
        gradients: The gradients of one parameter.
        rounded: Rounds each number.
    """
    return rounded(functools.reduce(np.add, map(rounded, gradients)))


def quantize(values: np.ndarray, largest: float) -> np.ndarray:
    """Rounds to whole numbers from -127 to 127, half to even.

    Args:
        values: The numbers, none of which is larger than `largest`.
        largest: The number that becomes 127; if it is zero, the scale is 1.
    """
    return np.rint(values * (LARGEST / (largest or LARGEST)))


def sum_of_int8(gradients: Ranks, kept: Kept, largest_of: Largest = largest_of_all) -> tuple[np.ndarray, Kept]:
    """Sums gradients that are sent as int8; the sum is sent as int8 as well.

    The sum is rounded in units of the first scale. Without a residual it is a whole number of them, so ties are exact. In any
    other unit, the last bit would decide a tie.

    Args:
        gradients: The gradients of one parameter.
        kept: What each rank kept of the last exchange of it.
        largest_of: As in `exchange`.

    Returns:
        The sum, and what each rank keeps.
    """
    added = zip(gradients, kept, strict=True)
    values = [gradient + own.get(RESIDUAL, 0.0) for gradient, own in added]
    largest = largest_of(values)
    scales = [(each or LARGEST) / LARGEST for each in largest]
    sent = list(map(quantize, values, largest))
    total = functools.reduce(np.add, sent) + kept[0].get(SUM_RESIDUAL, 0.0) / scales[0]
    (largest_sum,) = largest_of([total])
    sum_scale = (largest_sum or LARGEST) / LARGEST
    whole = quantize(total, largest_sum)
    left = [{RESIDUAL: value - own * scale} for value, own, scale in zip(values, sent, scales, strict=True)]
    left[0][SUM_RESIDUAL] = (total - whole * sum_scale) * scales[0]
    return whole * (sum_scale * scales[0]), left


def sum_of_factors(gradients: Ranks, kept: Kept, initial: np.ndarray) -> tuple[np.ndarray, Kept]:
    """Sums gradients that are sent as two factors of a matrix of low rank, P and Q.

    A column of Q that became zero would stay zero, so it takes its initial value again.

    Args:
        gradients: The gradients of one parameter; its last dim is that of the columns of the matrix.
        kept: What each rank kept of the last exchange of it.
        initial: Q before the first exchange [columns, rank].

    Returns:
        The sum, and what each rank keeps.
    """
    shape, columns = gradients[0].shape, gradients[0].shape[-1]
    added = zip(gradients, kept, strict=True)
    matrices = [(gradient + own.get(RESIDUAL, 0.0)).reshape(-1, columns) for gradient, own in added]
    right = kept[0].get(FACTOR, np.zeros_like(initial))
    right = orthogonalise(np.where(np.any(right, axis=0), right, initial))
    left = orthogonalise(functools.reduce(np.add, [matrix @ right for matrix in matrices]))
    right = functools.reduce(np.add, [matrix.T @ left for matrix in matrices])
    total = left @ right.T
    residuals = [{RESIDUAL: (matrix - total / len(gradients)).reshape(shape)} for matrix in matrices]
    residuals[0][FACTOR] = right
    return total.reshape(shape), residuals


def orthogonalise(matrix: np.ndarray) -> np.ndarray:
    """Makes columns orthonormal, one after the other; those far shorter than the first become zero.

    The rest of a column after its projections is off by at most the rounding error divided by LEAST_COLUMN: 1e-10 in float64.

    Args:
        matrix: [rows, columns].
    """
    left = matrix.copy()
    least = LEAST_COLUMN * np.linalg.norm(left[:, 0])
    for number in range(left.shape[1]):
        norm = np.linalg.norm(left[:, number])
        left[:, number] = left[:, number] / norm if norm > least else 0.0
        left[:, number + 1 :] -= np.outer(left[:, number], left[:, number] @ left[:, number + 1 :])
    return left

"""Compressed exchanges, stated once: the gradients of all ranks and what each kept -> their sum and what each keeps.

fp16 and bf16 round twice, as a gradient is sent twice: to the rank that adds up a piece of it, and the sum back. int8 does
so too, with scales that all ranks share, and adds what rounding left out to the next gradient. PowerSGD sends two factors of
a matrix. Which rank adds up which piece makes no difference to any of them.

References:
    Vogels et al., arXiv 1905.13727, algorithms 1 and 2 (PowerSGD, error feedback).
    torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py of torch 2.13: Q is made orthogonal before it is used again,
    and the residual is what the mean lacks.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from samestep.common.program import Arrays
from samestep.common.strategy import Run
from samestep.common.workload.compression import LARGEST, RESIDUAL, SUM_RESIDUAL

Ranks = Sequence[np.ndarray]
"""An array of each rank, all of one shape."""
Kept = Mapping[str, np.ndarray]
"""What a rank keeps, as in `TrainState.local`; the first rank has also what is the same for all."""


def exchange(run: Run, parts: Sequence[Arrays], local: Sequence[Kept]) -> tuple[Arrays, tuple[Arrays, ...]]:
    """Sums the gradients of all ranks by a compressed exchange.

    Args:
        run: With the method.
        parts: The gradients of each rank.
        local: What each rank kept of the last exchange; nothing before the first one.

    Returns:
        The sum as every rank has it, and what each rank keeps.
    """
    total: Arrays = {}
    kept: tuple[Arrays, ...] = tuple({} for _ in parts)
    for name in parts[0]:
        gradients = [part[name] for part in parts]
        if run.techniques.compress in HALVES:
            total[name] = sum_of_halves(gradients, HALVES[run.techniques.compress])
            continue
        residual, sum_residual = f"{RESIDUAL}/{name}", f"{SUM_RESIDUAL}/{name}"
        residuals = [held[residual] for held in local] or [np.zeros_like(g) for g in gradients]
        of_sum = local[0][sum_residual] if local else np.zeros_like(gradients[0])
        total[name], residuals, of_sum = sum_of_int8(gradients, residuals, of_sum)
        for own, left in zip(kept, residuals, strict=True):
            own[residual] = left
        kept[0][sum_residual] = of_sum
    return total, kept


def fp16(values: np.ndarray) -> np.ndarray:
    """Rounds to the nearest float16, by way of float32 as both frameworks do."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float16).astype(values.dtype)


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounds to the nearest bfloat16, half to even: the upper half of a float32."""
    bits = values.astype(np.float32).view(np.uint32)
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return upper.view(np.float32).astype(values.dtype)


HALVES: Mapping[str | None, Callable[[np.ndarray], np.ndarray]] = {"fp16": fp16, "bf16": bf16}


def sum_of_halves(gradients: Ranks, rounded: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Sums gradients that are rounded before the sum and after it.

    Args:
        gradients: Of one parameter.
        rounded: Rounds each number.
    """
    return rounded(functools.reduce(np.add, map(rounded, gradients)))


def quantise(values: np.ndarray, largest: float) -> np.ndarray:
    """Rounds to whole numbers from -127 to 127, half to even.

    Args:
        values: None is larger than the largest.
        largest: What becomes 127; with zero the scale is 1.
    """
    return np.rint(values * (LARGEST / (largest or LARGEST)))


def sum_of_int8(gradients: Ranks, residuals: Ranks, sum_residual: np.ndarray) -> tuple[np.ndarray, Ranks, np.ndarray]:
    """Sums gradients that are sent as int8, and so is their sum.

    The sum is rounded in units of the first scale: without a residual it is a whole number in them, and so is a tie, which
    rounding in any other unit would leave to the last bit.

    Args:
        gradients: Of one parameter.
        residuals: What each rank adds to its gradient.
        sum_residual: What is added to the sum.

    Returns:
        The sum, and both kinds of residual for the next one.
    """
    values = [gradient + residual for gradient, residual in zip(gradients, residuals, strict=True)]
    largest = max(float(np.abs(value).max()) for value in values)
    scale = (largest or LARGEST) / LARGEST
    sent = [quantise(value, largest) for value in values]
    residuals = [value - whole * scale for value, whole in zip(values, sent, strict=True)]
    total = functools.reduce(np.add, sent) + sum_residual / scale
    largest = float(np.abs(total).max())
    sum_scale = (largest or LARGEST) / LARGEST
    whole = quantise(total, largest)
    return whole * (sum_scale * scale), residuals, (total - whole * sum_scale) * scale

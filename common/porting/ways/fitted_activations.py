"""Activations with a parameter that is measured from the arrays; if no value fits, it is another activation."""

from collections.abc import Callable, Iterator

import numpy as np
from scipy import special

from samestep.common.porting.ways import formulas

_DIGITS = 9
Activation = tuple[str, Callable[[np.ndarray], np.ndarray]]
"""The name of an activation in messages, and its function."""


def activations(x: np.ndarray, seen: np.ndarray) -> Iterator[Activation]:
    """Yields every activation that may have turned one array into the other.

    Args:
        x: The input of the activation.
        seen: Its output.
    """
    yield from formulas.ACTIVATIONS.items()
    yield from measured(x, seen)


def measured(x: np.ndarray, seen: np.ndarray) -> Iterator[Activation]:
    """Yields activations with the parameter that a pair of arrays shows: a slope, an alpha, a limit, a temperature.

    Args:
        x: The input of the activation.
        seen: Its output.
    """
    if x.shape != seen.shape or x.dtype.kind != "f" or not x.size:
        return
    low = int(x.argmin())
    least, most, bottom = float(x.flat[low]), float(seen.max()), float(seen.flat[low])
    if least < 0:
        slope, alpha = (_rounded(bottom / divisor) for divisor in (least, np.expm1(least)))
        yield formulas.NumberedName(formulas.LEAKY, slope), formulas.leaky(slope)
        yield f"elu of alpha {alpha:g}", lambda x: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))
    limit = _rounded(most)
    if limit > 0:
        yield formulas.NumberedName(formulas.LIMITED, limit), lambda x: np.clip(x, 0, limit)
        yield f"{'hard tanh' if limit == 1 else f'clipping to {limit:g}'}", lambda x: np.clip(x, -limit, limit)
    if x.ndim > 1 and x.shape[-1] > 1 and (seen > 0).all():
        row, logs = x.reshape(-1, x.shape[-1])[0], np.log(seen.reshape(-1, x.shape[-1])[0])
        ends = int(row.argmax()), int(row.argmin())
        if row[ends[0]] > row[ends[1]]:
            times = _rounded((logs[ends[0]] - logs[ends[1]]) / (row[ends[0]] - row[ends[1]]))
            yield f"softmax of {times:g} times that", lambda x: formulas.softmax(times * x)
    if 0 < bottom < most < 1 and least:
        factor = _rounded(np.log(bottom / (1 - bottom)) / least)
        yield f"sigmoid of {factor:g} times that", lambda x: special.expit(factor * x)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else 0.0

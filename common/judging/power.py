"""What a later test of paired differences will find: how large a difference, and with how many pairs."""

import functools
import math

import numpy as np

from samestep.common.judging.statistics import student_quantile

_NODES = 64
"""Points at which a distribution is summed up; with more, the power of a test changes by less than 0.1 %."""


@functools.cache
def detectable(pairs: int, degrees: int, level: float, power: float = 0.9) -> float:
    """Computes the smallest true mean difference that a later test finds, in units of an estimated standard deviation.

    The usual formula takes the standard deviation as given. Here it is an estimate from few pairs, and may be half
    of the true one. So the power is averaged over what the true one may be: of all later tests, whose own estimates scatter
    likewise, the fraction `power` finds a difference of this size.

    Args:
        pairs: The pairs of the later test.
        degrees: The degrees of freedom that the estimate has: its number of pairs less one.
        level: The level of the later test, two-sided.
        power: The probability that it finds the difference.

    References:
        Faul et al., G*Power 3, 2007, for the power of the t-test with a known standard deviation.
    """
    low, high = 0.0, 1.0
    while _power(high, pairs, degrees, level) < power:
        low, high = high, 2 * high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _power(middle, pairs, degrees, level) < power else (low, middle)
    return high


def pairs_needed(difference: float, deviation: float, degrees: int, level: float, most: int = 1000) -> int | None:
    """Computes how many pairs a later test needs to find a difference in nine of ten cases.

    Args:
        difference: The true mean, not zero.
        deviation: The estimated standard deviation of the differences.
        degrees: The degrees of freedom of that estimate.
        level: The level of the later test, two-sided.
        most: The number of pairs to stop at.

    Returns:
        The number; None if it is larger than `most`.
    """

    def finds(pairs: int) -> bool:
        return detectable(pairs, degrees, level) * deviation <= abs(difference)

    if not finds(most):
        return None
    few, enough = 1, most
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if finds(middle) else (middle, enough)
    return enough


def _power(factor: float, pairs: int, degrees: int, level: float) -> float:
    """Returns the chance that a test finds a mean of `factor` estimated standard deviations, on the side on which it is.

    With a true standard deviation of one, the earlier test estimated u, the later one v, and the mean of the later one is
    normal. It finds the difference if sqrt(pairs) * factor * u + z > quantile * v.
    """
    from scipy.special import ndtr

    quantile = student_quantile(pairs - 1, 1 - level)
    earlier, later = _deviations(degrees)[:, None], _deviations(pairs - 1)[None, :]
    return float(ndtr(math.sqrt(pairs) * factor * earlier - quantile * later).mean())


@functools.cache
def _deviations(degrees: int) -> np.ndarray:
    """Estimates of a standard deviation of one, at equally probable points of their distribution."""
    from scipy.special import chdtri

    return np.sqrt(chdtri(degrees, (np.arange(_NODES) + 0.5) / _NODES) / degrees)

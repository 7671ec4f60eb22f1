"""Fits the formulas of Amdahl and Gustafson: which share of a step does not get faster with more devices."""

from collections.abc import Mapping, Sequence

from samestep.common.judging.statistics import mean_interval

TEXTBOOK = {2: 1.9, 4: 3.7, 8: 7.2}
"""Number of GPUs -> the speed-up that textbooks give for data parallelism: nearly linear."""
LEAST_POINTS = 3
"""The fewest points to fit: a formula with two unknowns goes through any two points exactly, so two cannot test it."""


def amdahl_share(seconds: Mapping[int, float]) -> float | None:
    """Fits the share of a step that stays serial while the batch stays the same.

    The formula says that n devices take a + b / n seconds; a / (a + b) is serial. The straight line in 1 / n is fitted by least
    squares, relative to each time, because noise multiplies times.

    Args:
        seconds: The seconds of a step, by the number of devices.

    Returns:
        The share, from 0 to 1; None with fewer than `LEAST_POINTS` numbers of devices.

    References:
        Amdahl, Validity of the Single Processor Approach to Achieving Large Scale Computing Capabilities, 1967.
    """
    return _share({1 / count: time for count, time in seconds.items()})


def gustafson_share(rates: Mapping[int, float]) -> float | None:
    """Fits the share of a step that stays serial while the batch grows with the devices.

    The formula says that n devices do a + b * n of what one does in the same time; a / (a + b) is serial.

    Args:
        rates: Examples per second, by the number of devices.

    Returns:
        The share, from 0 to 1; None with fewer than `LEAST_POINTS` numbers of devices.

    References:
        Gustafson, Reevaluating Amdahl's Law, 1988.
    """
    return _share({float(count): rate for count, rate in rates.items()})


def _share(points: Mapping[float, float]) -> float | None:
    """Fits y = a + b * x, relative to each y, with neither a nor b below 0; returns a / (a + b)."""
    if len(points) < LEAST_POINTS:
        return None
    ones = [1 / y for y in points.values()]
    slopes = [x / y for x, y in points.items()]
    aa, bb = sum(one * one for one in ones), sum(slope * slope for slope in slopes)
    ab = sum(one * slope for one, slope in zip(ones, slopes, strict=True))
    a, b = sum(ones) * bb - sum(slopes) * ab, sum(slopes) * aa - sum(ones) * ab
    a, b = max(0.0, a), max(0.0, b)
    return a / (a + b) if a + b else None


def share_interval(shares: Sequence[float]) -> tuple[float, float] | None:
    """Computes the 95 % confidence interval of a serial share that was fitted in each round.

    Args:
        shares: The share of each round, from 0 to 1.

    Returns:
        Low and high, from 0 to 1; None with fewer than two rounds.
    """
    if len(shares) < 2:
        return None
    _, low, high = mean_interval(shares)
    return max(0.0, low), min(1.0, high)

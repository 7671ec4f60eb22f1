"""Intervals for medians, on plain numbers."""

import math
import statistics
from collections.abc import Sequence


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Returns the median, and a distribution-free confidence interval for it from the order statistics.

    The number of values below the true median is binomial(n, 1/2), so the k-th smallest and k-th largest values enclose
    it with probability 1 - 2 P(binomial < k). With fewer than six values, no pair reaches 95 %, and the
    interval is the whole range.

    The windows of one run are not independent, because they share where its processes were placed and what else the machine
    did. Their interval would contain the median of a second run far less often than it claims.

    Args:
        values: At least one value, each from a separate trial.
        confidence: The least probability that the interval holds the true median.

    Returns:
        Median, low, high.

    References:
        Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2.
    """
    ordered = sorted(values)
    count = len(ordered)
    below, keep = 0.0, 0
    for k in range(count // 2):
        below += math.comb(count, k) / 2**count
        if 1 - 2 * below < confidence:
            break
        keep = k
    return statistics.median(ordered), ordered[keep], ordered[count - 1 - keep]

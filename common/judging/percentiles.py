"""Percentiles of the seconds of a step, from counts whose number does not grow with the number of steps.

Each count is the number of steps whose seconds lie between two neighbouring powers of `GROWTH`, so a percentile is off by 1 %
at most. Counts of several runs add up.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping

GROWTH = 1.02
"""The ratio of the two bounds of a count. From a microsecond to an hour there are 1,112 counts."""
_SHORTEST, _LONGEST = 1e-7, 1e6
"""The smallest and largest numbers of seconds that are counted as they are; others are clamped, which limits the counts."""


def count_seconds(counts: MutableMapping[int, int], seconds: Iterable[float]) -> None:
    """Adds steps to counts.

    Args:
        counts: Power of `GROWTH` -> steps.
        seconds: The seconds of each step.
    """
    for each in seconds:
        power = math.floor(math.log(min(max(each, _SHORTEST), _LONGEST), GROWTH))
        counts[power] = counts.get(power, 0) + 1


def percentile(several: Iterable[Mapping[int, int]], share: float) -> float | None:
    """Computes the seconds that a share of the steps of several runs did not exceed.

    Args:
        several: The counts of each run: power of `GROWTH` -> steps.
        share: 0.95 for p95.

    Returns:
        Seconds; None if there are too few steps for one to lie beyond the percentile: fewer than 20 for p95, 100 for p99.
    """
    counts: Counter[int] = Counter()
    for each in several:
        counts.update(each)
    total = counts.total()
    if total < 1 or total * (1 - share) < 1 - 1e-9:
        return None
    powers = sorted(counts)
    passed = itertools.accumulate(counts[power] for power in powers)
    wanted = share * total - 1e-9
    return next(GROWTH ** (power + 0.5) for power, steps in zip(powers, passed, strict=True) if steps >= wanted)

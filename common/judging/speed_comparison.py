"""Judges which of two rows is faster: round by round, corrected for the number of rows, and without a verdict on few rounds."""

import dataclasses
import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from samestep.common.judging.power import detectable, pairs_needed
from samestep.common.judging.statistics import holm, mean_interval, p_value, prediction_interval, welch

LEVEL = 0.05
"""The chance that a comparison calls any pair of equal rows different."""
LEAST_ROUNDS = 5
"""The fewest rounds for a verdict: with fewer, their spread is hardly known."""
Key = TypeVar("Key", bound=Hashable)
FASTER, SLOWER, NOT_SEPARATED, NO_VERDICT = "faster", "slower", "not separated", ""


@dataclasses.dataclass(frozen=True)
class PredictedSpeed:
    """The speed of a row, and the range in which a later comparison will find it.

    Attributes:
        median: The median, over the rounds, of each run's examples per second.
        low: The lower bound of the prediction interval: in 95 of 100 cases, the median of a later comparison of as many rounds on
            this machine lies between `low` and `high`. None with a single round.
        high: The upper bound; see `low`.
        rounds: The number of rounds.
    """

    median: float
    low: float | None
    high: float | None
    rounds: int


@dataclasses.dataclass(frozen=True)
class Difference:
    """The speed of a row as a multiple of that of another one, in the rounds that both have.

    Attributes:
        ratio: The geometric mean of the rounds' ratios.
        low: The lower bound of the ratio's 95 % confidence interval; None with a single round.
        high: The upper bound of that interval; None with a single round.
        rounds: The number of rounds that both rows have.
        deviation: The standard deviation of the logarithms of the ratios; None with a single round.
        verdict: Whether the row is "faster", "slower" or "not separated" from the other one; "" if there are too few rounds.
        p_value: The p-value of the verdict, corrected for the number of rows; None if there is no verdict.
        detectable: If not separated, the ratio that a later comparison like this one finds with 90 % power, upward or downward.
        rounds_needed: If not separated, how many rounds find the observed ratio with 90 % power; None if it takes more than a
            thousand.
    """

    ratio: float
    low: float | None
    high: float | None
    rounds: int
    deviation: float | None
    verdict: str = NO_VERDICT
    p_value: float | None = None
    detectable: float | None = None
    rounds_needed: int | None = None


Speeds = Sequence[float | None]
"""Examples per second of one row, one value per round; None in a round in which the row has no run."""


def predict_speed(speeds: Speeds) -> PredictedSpeed | None:
    """Computes the median speed of a row, and its prediction interval; returns None if the row has no run.

    Speeds are compared as logarithms, since noise multiplies them.

    Raises:
        ValueError: A speed is not a positive number.
    """
    logs = [_log(speed) for speed in speeds if speed is not None]
    if len(logs) < 2:
        return PredictedSpeed(math.exp(logs[0]), None, None, 1) if logs else None
    median, low, high = prediction_interval(logs)
    return PredictedSpeed(math.exp(median), math.exp(low), math.exp(high), len(logs))


def compare_speeds(pairs: Mapping[Key, tuple[Speeds, Speeds]]) -> dict[Key, Difference]:
    """Judges the speeds of pairs of rows together.

    A difference is taken within a round, where both runs found the machine in nearly the same state, and tested over the
    rounds (`statistics.p_value` has the reasons for the test). Holm's correction covers all pairs that are judged.

    Args:
        pairs: Name -> a row and the row it is compared with. They may only be pairs that can be ranked; rounds that one of the
            two rows lacks are left out.

    Returns:
        Name -> difference; pairs that share no round are left out.

    Raises:
        ValueError: A speed is not a positive number.
    """
    ratios = {name: _log_ratios(*pair) for name, pair in pairs.items()}
    return judge({name: logs for name, logs in ratios.items() if logs})


def judge(log_ratios: Mapping[Key, Sequence[float]]) -> dict[Key, Difference]:
    """Judges several pairs of rows together.

    Args:
        log_ratios: Pair -> the logarithm of the ratio of the speeds, for each round that both have; at least one.

    Raises:
        ValueError: A logarithm is not finite.
    """
    found = _corrected({name: _difference(logs) for name, logs in log_ratios.items()})
    separated = sum(each.verdict in (FASTER, SLOWER) for each in found.values())
    judged = sum(each.verdict != NO_VERDICT for each in found.values())
    level = LEVEL / max(1, judged - separated)
    """The level at which the correction tests the first pair that is not separated."""
    return {name: _with_power(each, level) if each.verdict == NOT_SEPARATED else each for name, each in found.items()}


def compare_apart(pairs: Mapping[Key, tuple[Speeds, Speeds]]) -> dict[Key, Difference]:
    """Judges the speeds of pairs of rows that were not measured in the same rounds, by Welch's test.

    Changes of the machine between the two comparisons stay in the difference: no interleaved rounds cancel them.

    Args:
        pairs: Name -> a row and the row it is compared with.

    Returns:
        Name -> difference; pairs in which one row has no speed are left out.

    Raises:
        ValueError: A speed is not a positive number.
    """
    logs = {name: tuple([_log(s) for s in row if s is not None] for row in pair) for name, pair in pairs.items()}
    return _corrected({name: _apart(*both) for name, both in logs.items() if all(both)})


def _corrected(found: Mapping[Key, Difference]) -> dict[Key, Difference]:
    """Returns the pairs with their verdicts, by p-values that are corrected for the number of pairs."""
    raw = {
        name: each.p_value for name, each in found.items() if each.p_value is not None and each.rounds >= LEAST_ROUNDS
    }
    corrected = dict(zip(raw, holm(list(raw.values())), strict=True))
    return {
        name: dataclasses.replace(each, verdict=_verdict(each.ratio, corrected.get(name)), p_value=corrected.get(name))
        for name, each in found.items()
    }


def _apart(logs: Sequence[float], others: Sequence[float]) -> Difference:
    """Returns the difference of a pair that was measured apart, with the p-value of the pair alone."""
    rounds = min(len(logs), len(others))
    found = Difference(math.exp(statistics.fmean(logs) - statistics.fmean(others)), None, None, rounds, None)
    if rounds < 2 or (test := welch(logs, others, 1 - LEVEL)) is None:
        return found
    low, high, p_value = test
    return dataclasses.replace(found, low=math.exp(low), high=math.exp(high), p_value=p_value)


def _verdict(ratio: float, corrected: float | None) -> str:
    if corrected is None:
        return NO_VERDICT
    if corrected > LEVEL:
        return NOT_SEPARATED
    return FASTER if ratio > 1 else SLOWER


def _difference(logs: Sequence[float]) -> Difference:
    """Returns the difference of a pair, with the p-value of the pair alone."""
    if len(logs) == 1:
        return Difference(math.exp(logs[0]), None, None, 1, None)
    (mean, low, high), deviation = mean_interval(logs), statistics.stdev(logs)
    alone = p_value(logs) if deviation else None
    return Difference(math.exp(mean), math.exp(low), math.exp(high), len(logs), deviation, p_value=alone)


def _with_power(difference: Difference, level: float) -> Difference:
    """Adds to a pair that is not separated what would separate it, at the level of a later test."""
    degrees, deviation = difference.rounds - 1, difference.deviation or 0.0
    return dataclasses.replace(
        difference,
        detectable=math.exp(detectable(difference.rounds, degrees, level) * deviation),
        rounds_needed=pairs_needed(math.log(difference.ratio), deviation, degrees, level),
    )


def _log_ratios(row: Speeds, reference: Speeds) -> list[float]:
    rounds = zip(row, reference, strict=False)
    return [_log(speed) - _log(other) for speed, other in rounds if speed is not None and other is not None]


def _log(speed: float) -> float:
    if not (speed > 0 and math.isfinite(speed)):
        raise ValueError(f"a speed is a positive number, not {speed}")
    return math.log(speed)

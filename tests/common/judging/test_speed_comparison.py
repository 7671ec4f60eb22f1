"""Intervals hold what a repetition finds, verdicts are rarely wrong, and what a verdict promises to find is found.

Every bound is far from what a sound method gives: with the seeds as they are, nothing here depends on luck.
"""

import math

import numpy as np
import pytest

from samestep.common.judging.speed_comparison import (
    FASTER,
    LEAST_ROUNDS,
    LEVEL,
    NO_VERDICT,
    NOT_SEPARATED,
    SLOWER,
    Difference,
    Speeds,
    compare_apart,
    compare_speeds,
    judge,
    predict_speed,
)
from samestep.common.judging.statistics import p_value
from tests.common.judging.made_up_speeds import Noise, draw

QUIET, USUAL, BUSY = Noise(run=0.01), Noise(run=0.03), Noise(run=0.05, disturbed=0.05)
TRIALS = 300


def one(speeds: np.ndarray, factor: float = 1.0) -> Difference:
    """The first column, so many times as fast, against the second one."""
    return against(list(factor * speeds[:, 0]), list(speeds[:, 1]))


def against(row: Speeds, reference: Speeds) -> Difference:
    return compare_speeds({"row": (row, reference)})["row"]


def binomial_deviation(share: float) -> float:
    return math.sqrt(share * (1 - share) / TRIALS)


@pytest.mark.parametrize("noise", [QUIET, USUAL, BUSY])
@pytest.mark.parametrize("rounds", [2, 3, 5, 10])
def test_a_later_comparison_lies_in_the_interval_as_often_as_it_says(noise: Noise, rounds: int) -> None:
    random, held = np.random.default_rng(rounds), 0
    for _ in range(TRIALS):
        now, later = (predict_speed(list(draw(noise, rounds, 1, random)[:, 0])) for _ in range(2))
        held += now.low <= later.median <= now.high
    assert 0.91 <= held / TRIALS <= 0.99


def test_an_interval_of_the_windows_alone_would_hold_far_less_often() -> None:
    """What catches a method that takes windows for repetitions: the variance between runs is not in them."""
    random, held = np.random.default_rng(0), 0
    for _ in range(TRIALS):
        level, later = draw(USUAL, 2, 1, random)[:, 0]
        windows = level * np.exp(random.normal(size=20) * USUAL.window)
        now = predict_speed(list(windows))
        held += now.low <= later <= now.high
    assert held / TRIALS < 0.6


@pytest.mark.parametrize("noise", [QUIET, USUAL, BUSY])
@pytest.mark.parametrize("rounds", [5, 10])
def test_equal_rows_are_rarely_called_different(noise: Noise, rounds: int) -> None:
    random = np.random.default_rng(rounds)
    called = sum(one(draw(noise, rounds, 2, random)).verdict != NOT_SEPARATED for _ in range(TRIALS))
    assert called / TRIALS <= LEVEL + 3 * binomial_deviation(LEVEL)


def test_of_twenty_equal_rows_none_is_called_different_in_most_comparisons() -> None:
    random, called, uncorrected = np.random.default_rng(0), 0, 0
    for _ in range(100):
        logs = np.log(draw(USUAL, 5, 21, random))
        ratios = {str(row): list(logs[:, row] - logs[:, 0]) for row in range(1, 21)}
        called += any(each.verdict != NOT_SEPARATED for each in judge(ratios).values())
        uncorrected += any(p_value(each) <= LEVEL for each in ratios.values())
    assert called <= 10
    assert uncorrected > 30


@pytest.mark.parametrize(("noise", "least"), [(QUIET, 0.85), (USUAL, 0.85), (BUSY, 0.8)])
@pytest.mark.parametrize("rounds", [5, 10])
def test_the_difference_that_a_verdict_names_is_found_in_a_later_comparison(
    noise: Noise, least: float, rounds: int
) -> None:
    random, found, asked = np.random.default_rng(rounds), 0, 0
    for _ in range(TRIALS):
        now, later = one(draw(noise, rounds, 2, random)), draw(noise, rounds, 2, random)
        if now.detectable is not None:
            asked += 1
            found += one(later, now.detectable).verdict == FASTER
    assert found / asked >= least
    assert found / asked <= 0.96 or noise is BUSY, "a smaller difference would have done"


def test_the_usual_formula_would_promise_too_much() -> None:
    """With the standard deviation taken as known: what the estimate's own uncertainty costs."""
    random, found = np.random.default_rng(0), 0
    for _ in range(TRIALS):
        now, later = one(draw(USUAL, 5, 2, random)), draw(USUAL, 5, 2, random)
        found += one(later, math.exp(1.97 * now.deviation)).verdict == FASTER  # G*Power: n = 5, two-sided, 90 %
    assert found / TRIALS < 0.82


def test_the_rounds_that_it_names_separate_what_was_seen() -> None:
    """Where what was seen is what is true."""
    random, true, noise = np.random.default_rng(0), 1.03, Noise(run=0.03, window=0.0)
    seen = judge({"row": [math.log(true) + x for x in _scattered(8, math.sqrt(2) * noise.run)]})["row"]
    assert seen.verdict == NOT_SEPARATED
    assert seen.ratio == pytest.approx(true)
    assert 8 < seen.rounds_needed < 60
    comparisons = [one(draw(noise, seen.rounds_needed, 2, random), true) for _ in range(100)]
    assert sum(each.verdict == FASTER for each in comparisons) >= 85


def _scattered(count: int, deviation: float) -> list[float]:
    """Numbers with exactly this standard deviation and mean zero."""
    values = np.linspace(-1, 1, count)
    return list(values * deviation / values.std(ddof=1))


def test_pairs_cancel_what_a_round_does_to_both() -> None:
    random = np.random.default_rng(0)
    speeds = draw(Noise(run=0.002, round=0.3, window=0.0), 5, 2, random)
    assert one(speeds, 1.05).verdict == FASTER
    assert one(speeds, 0.95).verdict == SLOWER
    prediction = predict_speed(list(speeds[:, 0]))
    assert prediction.high > 1.2 * prediction.low


def test_a_ratio_is_of_the_row_to_the_reference() -> None:
    found = against([200.0, 220.0], [100.0, 100.0])
    assert found.ratio == pytest.approx(math.sqrt(2.0 * 2.2))
    assert found.low < found.ratio < found.high
    assert (found.rounds, found.verdict) == (2, NO_VERDICT)


@pytest.mark.parametrize("rounds", range(1, LEAST_ROUNDS + 1))
def test_few_rounds_give_numbers_and_no_verdict(rounds: int) -> None:
    reference = [100.0, 101.0, 99.0, 100.0, 102.0][:rounds]
    found = against([2.0 * speed + n for n, speed in enumerate(reference)], reference)
    assert found.ratio == pytest.approx(2.0, rel=0.05)
    assert found.verdict == (FASTER if rounds == LEAST_ROUNDS else NO_VERDICT)
    assert (found.p_value is None) == (rounds < LEAST_ROUNDS)
    assert (found.low is None) == (rounds == 1)


def test_rounds_that_one_of_two_rows_lacks_are_no_pairs() -> None:
    """An interrupted comparison has run some rows once less often than others."""
    assert against([None, 200.0, 210.0], [100.0, 100.0, None]) == against([200.0], [100.0])
    assert against([200.0, 210.0], [100.0]).rounds == 1
    assert compare_speeds({"never": ([None, 1.0], [1.0, None]), "not yet": ([], [1.0])}) == {}


def test_a_row_with_few_rounds_does_not_make_the_others_stricter() -> None:
    speeds = draw(USUAL, 6, 3, np.random.default_rng(0))
    row, short, reference = list(1.1 * speeds[:, 0]), list(speeds[:2, 1]), list(speeds[:, 2])
    together = compare_speeds({"row": (row, reference), "short": (short, reference)})
    assert together["row"] == against(row, reference)


def test_copies_are_no_repetitions() -> None:
    """Clocks never give the same ratio five times: such rounds are one run, copied."""
    found = against([200.0] * 6, [100.0] * 6)
    assert (found.ratio, found.deviation, found.verdict) == (pytest.approx(2.0), 0.0, NO_VERDICT)


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_speed_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="a speed is a positive number"):
        predict_speed([100.0, speed])
    with pytest.raises(ValueError, match="a speed is a positive number"):
        against([100.0], [speed])


def test_one_round_has_a_speed_and_no_interval() -> None:
    assert predict_speed([None, 100.0]).low is None
    assert predict_speed([None]) is None


# --- measured apart ---------------------------------------------------------------------------------------------------


def test_rows_measured_apart_are_judged_by_welchs_test_from_five_rounds_on() -> None:
    then = [100.0, 103.0, 98.0, 101.0, 99.0]
    found = compare_apart(
        {"up": ([200.0, 206.0, 196.0, 203.0, 199.0], then), "same": (then[::-1], then), "few": (then[:4], then)}
    )
    assert {name: each.verdict for name, each in found.items()} == {
        "up": FASTER,
        "same": NOT_SEPARATED,
        "few": NO_VERDICT,
    }
    assert found["up"].low < 2.0 < found["up"].high
    assert (found["few"].p_value, found["same"].ratio) == (None, pytest.approx(1.0))


def test_rows_measured_apart_that_are_alike_are_seldom_called_different() -> None:
    random = np.random.default_rng(0)
    speeds = np.exp(random.normal(5, 0.1, (400, 2, 7)))
    called = [compare_apart({"a": (list(one), list(other))})["a"].verdict != NOT_SEPARATED for one, other in speeds]
    assert 0.02 < np.mean(called) < 0.085


def test_without_scatter_or_without_speeds_nothing_is_judged() -> None:
    assert compare_apart({"a": ([None], [1.0])}) == {}
    assert compare_apart({"a": ([2.0] * 5, [1.0] * 5)})["a"].verdict == NO_VERDICT

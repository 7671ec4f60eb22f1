import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, ttest_1samp, ttest_ind

from benchmarks.intervals import median_interval
from samestep.common.judging.statistics import (
    holm,
    mean_interval,
    p_value,
    prediction_interval,
    welch,
)


def test_the_median_lies_between_the_bounds_whatever_the_order():
    values = [float(n) for n in range(1, 22)]
    random.Random(0).shuffle(values)
    assert median_interval(values) == (11.0, 6.0, 16.0)  # Conover's table A3: n = 21, ranks 6 and 16


def test_an_even_number_of_values_has_its_median_between_two():
    median, low, high = median_interval([float(n) for n in range(1, 21)])
    assert (median, low, high) == (10.5, 6.0, 15.0)  # Conover's table A3: n = 20, ranks 6 and 15


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_too_few_values_for_any_interval_give_the_whole_range(count):
    median, low, high = median_interval([float(n) for n in range(count)])
    assert (low, median, high) == (0.0, (count - 1) / 2, count - 1.0)


@pytest.mark.parametrize(("count", "confidence"), [*itertools.product([6, 7, 20, 101], [0.5, 0.95, 0.99])])
def test_the_interval_holds_the_median_as_often_as_it_says_and_no_narrower_one_does(count, confidence):
    _, low, high = median_interval([float(n) for n in range(count)], confidence)
    kept = int(low)
    assert high == count - 1 - kept
    covered = 1 - 2 * binom.cdf(kept, count, 0.5)
    assert covered >= confidence or kept == 0
    assert 1 - 2 * binom.cdf(kept + 1, count, 0.5) < confidence


def test_equal_values_have_no_width():
    assert median_interval([3.0] * 9) == (3.0, 3.0, 3.0)


@pytest.mark.parametrize("count", [2, 5, 20])
def test_a_prediction_is_wider_than_what_is_known_of_the_median(count):
    values = [float(n) for n in range(count)]
    median, low, high = prediction_interval(values)
    _, wide, _ = prediction_interval(values, 0.99)
    assert wide < low < median < high
    assert high - median == pytest.approx(median - low)
    assert high - low > 1.7 * (mean_interval(values)[2] - mean_interval(values)[1])


def test_few_values_give_wide_intervals():
    widths = [prediction_interval([-1.0, 1.0] * count)[2] for count in (1, 2, 3, 10)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 15 * widths[-1]


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [math.inf, 1.0]])
@pytest.mark.parametrize("function", [prediction_interval, mean_interval, p_value])
def test_what_has_no_interval_is_refused(function, values):
    with pytest.raises(ValueError, match="two finite values or more"):
        function(values)


def test_differences_without_scatter_have_no_p_value():
    with pytest.raises(ValueError, match="no scatter"):
        p_value([0.5, 0.5, 0.5])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=3, max_size=20).filter(lambda values: max(values) - min(values) > 1e-3))
def test_the_p_value_and_the_interval_are_those_of_scipy(values):
    expected = ttest_1samp(values, 0.0)
    assert p_value(values) == pytest.approx(expected.pvalue, rel=1e-12, abs=1e-12)
    low, high = expected.confidence_interval()
    assert mean_interval(values)[1:] == pytest.approx((low, high), rel=1e-12, abs=1e-12)


def test_holms_correction_is_that_of_his_paper():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_a_corrected_p_value_is_no_smaller_and_keeps_the_order(values):
    corrected = holm(values)
    assert all(raw <= new <= 1 for raw, new in zip(values, corrected, strict=True))
    assert sorted(corrected) == [new for _, new in sorted(zip(values, corrected, strict=True))]


# --- two samples ------------------------------------------------------------------------------------------------------


def test_two_samples_are_as_far_apart_as_scipy_says() -> None:
    one, other = [3.1, 2.9, 3.4, 3.0, 3.3], [2.0, 2.6, 1.9, 2.8, 2.3, 2.4]
    expected = ttest_ind(one, other, equal_var=False)
    found = welch(one, other, 0.9)
    assert found == pytest.approx((*expected.confidence_interval(0.9), expected.pvalue), rel=1e-12)


def test_samples_without_scatter_have_no_test() -> None:
    assert welch([1.0, 1.0], [3.0, 3.0]) is None

import itertools
import random

import pytest
from scipy.stats import binom

from samestep.common.evidence.statistics import median_interval


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

import pytest

from samestep.common.judging.power import detectable, pairs_needed


def test_with_a_known_deviation_the_power_is_the_usual_one():
    """G*Power 3.1, t-test of the mean of one sample, two-sided, 5 %, 90 %: 10 values find 1.15 standard deviations."""
    assert detectable(10, 10**6, 0.05) == pytest.approx(1.153, rel=0.01)
    assert pairs_needed(0.5, 1.0, 10**6, 0.05) == 44
    assert pairs_needed(-0.5, 1.0, 10**6, 0.05) == 44


def test_an_estimated_deviation_asks_for_more():
    factors = [detectable(5, degrees, 0.05) for degrees in (4, 9, 19, 10**6)]
    assert factors == sorted(factors, reverse=True)
    assert factors[0] > 1.2 * factors[-1]
    assert detectable(5, 4, 0.05 / 20) > 2 * factors[0]


def test_what_no_thousand_pairs_find_has_no_number():
    assert pairs_needed(0.0, 1.0, 4, 0.05) is None
    assert pairs_needed(0.01, 1.0, 4, 0.05) is None

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samestep.common.judging.percentiles import GROWTH, count_seconds, percentile

SECONDS = st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=300)
SHARES = (0.5, 0.95, 0.99)


def counted(*several: list[float]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for seconds in several:
        count_seconds(counts, seconds)
    return counts


@given(SECONDS)
def test_a_percentile_is_that_of_the_sorted_seconds_to_one_percent(seconds: list[float]) -> None:
    for share in SHARES:
        exact = sorted(seconds)[math.ceil(share * len(seconds) - 1e-9) - 1]
        found = percentile([counted(seconds)], share)
        assert found is None or found == pytest.approx(exact, rel=0.0101)


@given(SECONDS, SECONDS)
def test_the_counts_of_two_runs_add_up(one: list[float], other: list[float]) -> None:
    assert counted(one, other) == counted(one + other)
    for share in SHARES:
        assert percentile([counted(one), counted(other)], share) == percentile([counted(one + other)], share)


def test_a_percentile_needs_a_step_beyond_it() -> None:
    least = {share: next(n for n in range(1, 200) if percentile([counted([0.01] * n)], share)) for share in SHARES}
    assert least == {0.5: 2, 0.95: 20, 0.99: 100}
    assert percentile([{}], 0.5) is None


def test_counts_do_not_grow_with_steps() -> None:
    seconds = [0.001 * (1 + n % 997 / 997) for n in range(100_000)]
    assert len(counted(seconds)) < math.log(2, GROWTH) + 2


@pytest.mark.parametrize("strange", [0.0, -1.0, 1e300])
def test_no_clock_makes_a_count_of_its_own(strange: float) -> None:
    """A clock that stands still, or a machine that slept."""
    assert sum(counted([0.01, strange]).values()) == 2
    assert max(map(abs, counted([strange]))) < 1000

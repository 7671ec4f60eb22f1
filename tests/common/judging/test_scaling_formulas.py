"""Amdahl's and Gustafson's formulas come out of times that follow them."""

import pytest

from samestep.common.judging.scaling_fit import TEXTBOOK, amdahl_share, gustafson_share, share_interval

SHARES = (0.0, 0.05, 0.3, 1.0)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("counts", [(1, 2, 4), (2, 4, 8), (1, 2, 4, 8)])
def test_times_by_amdahls_formula_give_its_share(share: float, counts: tuple[int, ...]) -> None:
    assert amdahl_share({n: 7.0 * (share + (1 - share) / n) for n in counts}) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("counts", [(1, 2, 4), (2, 4, 8), (1, 2, 4, 8)])
def test_rates_by_gustafsons_formula_give_its_share(share: float, counts: tuple[int, ...]) -> None:
    assert gustafson_share({n: 50.0 * (share + (1 - share) * n) for n in counts}) == pytest.approx(share, abs=1e-9)


def test_noise_hardly_moves_the_share() -> None:
    exact = {n: 0.2 + 0.8 / n for n in (1, 2, 4, 8)}
    noisy = {n: seconds * (1.02 if n in (1, 4) else 0.98) for n, seconds in exact.items()}
    assert amdahl_share(noisy) == pytest.approx(0.2, abs=0.03)


def test_what_is_faster_than_linear_or_slower_than_one_device_has_no_share_beyond_the_bounds() -> None:
    assert amdahl_share({1: 1.0, 2: 0.4, 4: 0.15}) == 0.0
    assert amdahl_share({1: 1.0, 2: 1.5, 4: 2.0}) == 1.0
    assert gustafson_share({1: 1.0, 2: 3.0, 4: 9.0}) == 0.0


def test_two_points_are_no_law() -> None:
    assert amdahl_share({1: 1.0, 2: 0.7}) is amdahl_share({4: 1.0}) is gustafson_share({}) is None


def test_an_interval_of_shares_stays_between_nothing_and_all() -> None:
    assert share_interval([0.1]) is None
    assert share_interval([0.2, 0.2, 0.2]) == pytest.approx((0.2, 0.2))
    assert share_interval([0.0, 0.5]) == (0.0, 1.0)


def test_the_textbooks_figures_are_nearly_linear() -> None:
    assert amdahl_share({1: 1.0, **{n: 1 / speedup for n, speedup in TEXTBOOK.items()}}) == pytest.approx(
        0.02, abs=0.01
    )

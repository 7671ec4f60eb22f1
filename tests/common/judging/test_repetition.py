"""Two runs of one request: bit-equal, equal but for rounding, or changed, with the first step that differs."""

import math

import pytest

from samestep.common.judging.repetition import CHANGED, EQUAL, ROUNDED, Repetition, compare_losses


def test_equal_bits_are_equal_as_far_as_both_go() -> None:
    assert compare_losses("float64", 0, [0.5, 0.25, 0.1], [0.5, 0.25]) == Repetition(
        EQUAL, 2, None, None, None, None, 1e-12
    )


@pytest.mark.parametrize(
    ("dtype", "now", "verdict"),
    [
        ("float64", 0.25 * (1 + 5e-13), ROUNDED),
        ("float64", 0.25 * (1 + 5e-12), CHANGED),
        ("float32", 0.25 * (1 + 5e-6), ROUNDED),
        ("float32", 0.25 * (1 + 5e-5), CHANGED),
    ],
)
def test_the_bounds_are_those_of_parity(dtype: str, now: float, verdict: str) -> None:
    found = compare_losses(dtype, 10, [0.5, now, 0.1], [0.5, 0.25, 0.1])
    assert (found.verdict, found.step, found.now, found.then, found.steps) == (verdict, 11, now, 0.25, 3)
    assert found.deviation == pytest.approx(now / 0.25 - 1, rel=1e-3)


def test_a_float32_loss_near_zero_is_held_against_a_tenth() -> None:
    assert compare_losses("float32", 0, [1e-6], [2e-7]).verdict == ROUNDED
    assert compare_losses("float64", 0, [1e-6], [2e-7]).verdict == CHANGED


def test_the_step_that_is_named_is_the_first_beyond_the_bounds() -> None:
    found = compare_losses("float32", 0, [0.5 + 1e-7, 0.6, 0.7], [0.5, 0.5, 0.5])
    assert (found.verdict, found.step) == (CHANGED, 1)


def test_what_is_no_number_has_changed() -> None:
    found = compare_losses("float32", 0, [0.5, math.nan], [0.5, 0.5])
    assert (found.verdict, found.step, found.deviation) == (CHANGED, 1, None)

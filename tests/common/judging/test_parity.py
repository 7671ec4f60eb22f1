import math

import numpy as np
import pytest

from samestep.common.judging.parity import (
    LOSS_BOUND,
    WEIGHT_BOUND,
    Parity,
    judge,
    judge_statistics,
    not_judged,
    relative_distance,
)
from samestep.common.techniques.precision.bound import fit_in_two_bytes

PARAMS = {"hidden/kernel": np.ones((2, 3)), "output/bias": np.zeros(4)}
LOSSES = [2.0, 1.5, 1.25, 1.0]


def held_against(
    losses, reference=LOSSES, params=PARAMS, reference_params=PARAMS, dtype="float64", first=0, noise=0.0
) -> Parity:
    return judge("numpy:oracle", dtype, first, losses, reference, params, reference_params, noise)


def moved(by: float) -> dict[str, np.ndarray]:
    return PARAMS | {"output/bias": np.array([0.0, by, 0.0, 0.0])}


def test_the_bounds_are_those_that_were_promised():
    assert LOSS_BOUND == {"float64": 1e-12, "float32": 1e-5}
    assert {"float64": 1e-10, "float32": math.inf} == WEIGHT_BOUND


def test_the_same_numbers_pass_with_no_deviation():
    assert held_against(LOSSES) == Parity("numpy:oracle", 4, 0.0, 0.0, True, deviations=(0.0,) * 4)


@pytest.mark.parametrize(("deviation", "passed"), [(0.9e-12, True), (1.1e-12, False)])
@pytest.mark.parametrize("step", range(4))
def test_float64_is_bounded_relatively_at_every_step(deviation, passed, step):
    losses = [loss * (1 + deviation * (i == step)) for i, loss in enumerate(LOSSES)]
    found = held_against(losses)
    assert found.passed is passed
    assert found.first_bad_step == (None if passed else step)
    assert found.max_relative_loss == pytest.approx(deviation, rel=0.2)


@pytest.mark.parametrize(("deviation", "passed"), [(0.9e-5, True), (1.1e-5, False)])
@pytest.mark.parametrize(("loss", "unit"), [(2.0, 2.0), (0.01, 0.1), (0.0, 0.1)])
def test_float32_is_bounded_relatively_to_at_least_a_tenth(deviation, passed, loss, unit):
    found = held_against([loss + deviation * unit], [loss], dtype="float32")
    assert found.passed is passed
    assert found.max_relative_loss == pytest.approx(deviation, rel=1e-6)


@pytest.mark.parametrize(("deviation", "passed"), [(0.9e-10, True), (1.1e-10, False), (math.nan, False), (-1.0, False)])
def test_float64_weights_are_bounded_absolutely(deviation, passed):
    found = held_against(LOSSES, params=moved(deviation))
    assert found.passed is passed
    assert found.first_bad_step is None
    assert passed or found.reason.startswith("after the last step output/bias is off by ")


def test_a_weight_may_move_by_what_rounding_alone_does():
    found = [held_against(LOSSES, params=moved(deviation), noise=3e-10) for deviation in (2.9e-10, 3.1e-10)]
    assert [each.passed for each in found] == [True, False]
    assert found[1].reason.endswith("(allowed 3e-10)")


def test_the_deviation_of_every_step_is_kept():
    found = held_against([2.0, 3.0, math.nan, 1.0])
    assert found.deviations == (0.0, 1.0, None, 0.0)
    assert (found.first_bad_step, found.max_relative_loss) == (1, None)


def test_float32_weights_are_not_bounded_but_must_be_numbers():
    assert held_against(LOSSES, params=moved(1e3), dtype="float32").passed
    for bad in (math.nan, math.inf):
        assert not held_against(LOSSES, params=moved(bad), dtype="float32").passed


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_without_the_references_weights_the_losses_are_judged_and_weights_must_be_numbers(dtype):
    passed = Parity("numpy:oracle", 4, 0.0, None, True, deviations=(0.0,) * 4)
    assert held_against(LOSSES, reference_params=None, dtype=dtype) == passed
    assert held_against([*LOSSES[:3], 1.1], reference_params=None, dtype=dtype).first_bad_step == 3
    for bad in (math.nan, math.inf):
        found = held_against(LOSSES, params=moved(bad), reference_params=None, dtype=dtype)
        assert (found.passed, found.max_absolute_weight, found.first_bad_step) == (False, None, None)
        assert found.reason.startswith("after the last step output/bias is off by nan")


def test_two_losses_that_differ_are_spelled_so_that_it_shows():
    reason = held_against([2.0, 1.5 * (1 + 2e-12), 1.25, 1.0]).reason
    assert reason.startswith("the loss of step 1 is 1.500000000003 instead of 1.5, a relative deviation of 2.0e-12")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_never_passes(dtype, bad):
    assert held_against([2.0, bad, 1.25, 1.0], dtype=dtype).first_bad_step == 1
    assert held_against(LOSSES, [2.0, bad, 1.25, 1.0], dtype=dtype).first_bad_step == 1
    assert not held_against([2.0, bad, 1.25, 1.0], [2.0, bad, 1.25, 1.0], dtype=dtype).passed


def test_the_weight_that_is_no_number_is_the_one_that_is_named():
    params = PARAMS | {"hidden/kernel": np.full((2, 3), math.nan)}
    reason = held_against(LOSSES, params=params).reason
    assert reason.startswith("after the last step hidden/kernel is off by nan")


def test_the_first_bad_step_is_named_by_its_number_in_the_whole_training():
    found = held_against([2.0, 1.5, 1.3, 1.1], first=50)
    assert found.first_bad_step == 52
    assert (
        found.reason
        == "the loss of step 52 is 1.3 instead of 1.25, a relative deviation of 4.0e-02 where 1e-12 is allowed"
    )
    assert found.max_relative_loss == pytest.approx(0.1)


def test_losses_that_miss_are_told_before_weights_that_do():
    assert "the loss of step 0" in held_against([3.0, *LOSSES[1:]], params=moved(1.0)).reason


@pytest.mark.parametrize("losses", [[], LOSSES[:3], [*LOSSES, 0.9]])
def test_another_number_of_steps_cannot_be_compared(losses):
    with pytest.raises(ValueError, match="losses against 4"):
        held_against(losses)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"hidden/kernel": PARAMS["hidden/kernel"]},
        PARAMS | {"more": np.zeros(1)},
        PARAMS | {"hidden/kernel": np.ones((3, 2))},
    ],
    ids=["none", "one missing", "one more", "transposed"],
)
def test_other_parameters_cannot_be_compared(params):
    with pytest.raises(ValueError, match="differ in name or shape"):
        held_against(LOSSES, params=params)


def test_what_was_not_judged_says_why():
    assert not_judged("--no-parity") == Parity("", 0, None, None, None, "--no-parity")


@pytest.mark.parametrize(("off", "passed"), [(0.9e-2, True), (1.1e-2, False)])
def test_running_statistics_are_bounded_by_their_length(off: float, passed: bool) -> None:
    wanted = {"a/running_mean": np.zeros(2), "a/running_var": np.array([3.0, 4.0])}
    kept = wanted | {"a/running_mean": np.array([5 * off, 0.0], np.float32)}
    away = relative_distance(kept, wanted)
    assert away == pytest.approx(off)
    found = judge_statistics(held_against(LOSSES, dtype="float32"), away, 1e-2)
    assert found.passed is passed
    said = "after the last step the running statistics are off by 1.1 % of their length (allowed 1.0 %)"
    assert found.reason == ("" if passed else said)


def test_statistics_leave_a_verdict_on_losses_and_a_model_without_them() -> None:
    missed = held_against([2.0, 1.5, 1.25, 1.1])
    assert judge_statistics(missed, 1.0, 0.0) == missed
    assert judge_statistics(held_against(LOSSES), relative_distance({}, {}), 0.0).passed


def test_masters_in_two_bytes_are_those_whose_bits_are_few() -> None:
    exact = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    rounded = (exact.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)  # as bf16
    assert fit_in_two_bytes({"kernel": rounded, "bias": exact.astype(np.float16).astype(np.float32)})
    assert not fit_in_two_bytes({"kernel": rounded, "bias": exact[0]})

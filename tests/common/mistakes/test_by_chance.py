"""What hardly any number decides names no mistake, and numbers that divide by nothing end no judgement."""

import dataclasses
import math

import numpy as np
import pytest

from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.seen_tensor import SeenTensor
from samestep.common.mistakes.table import causes
from samestep.common.steps.gradient_transforms import CLIP_CALLS, CLIP_MOST, CLIP_NORM, CLIP_VALUE
from samestep.common.steps.recorded_run import RankSplit

ADAM = {"lr": 0.1, "betas.0": 0.9, "betas.1": 0.999}
SIDE = Side(1, 1, 1, 1.0, (1.0,), None, ADAM, (), (), False, ())
DRAWN = np.random.default_rng(0).normal(size=(4, 8))


def seen(ratio: float, size: int = 64, **more: object) -> list[SeenTensor]:
    """Two tensors, in B as many times those of A."""
    return [
        SeenTensor(name, "kernel", "parameter", size, one, ratio * one, 1e-7, 10.0, **more)
        for name, one in zip("uv", DRAWN, strict=False)
    ]


def named(evidence: Evidence) -> list[str]:
    return [each.name for each in causes(evidence)]


def updated(step: int, ratio: float) -> list[str]:
    return named(Evidence("update", step, SIDE, SIDE, seen(1.0), seen(ratio)))


def correction(steps: int) -> float:
    """By what Adam multiplies an update, to correct the bias of its moments."""
    return math.sqrt(1 - 0.999**steps) / (1 - 0.9**steps)


def test_a_late_update_of_any_factor_is_no_count_of_steps_that_was_lost() -> None:
    """Of thousands of counts, one corrects by nearly any factor."""
    assert updated(5000, 0.9) == ["update_times"]
    assert updated(5000, correction(1) / correction(5001)) == ["step_count_lost"]


@pytest.mark.parametrize(
    ("rates", "expected"), [([1.0, 0.5, 0.25, 0.125, 0.0625], ["update_factors"]), ([1.0, 0.5], [])]
)
def test_many_factors_of_updates_are_no_other_formula_where_learning_rates_have_them(
    rates: list[float], expected: list[str]
) -> None:
    """As where each layer has a rate of its own."""
    ones = np.random.default_rng(0).normal(size=(5, 8))
    gradients = [
        SeenTensor(str(place), "kernel", "parameter", 64, one, one, 1e-7, 10.0) for place, one in enumerate(ones)
    ]
    moves = [dataclasses.replace(each, other=0.5**place * each.one) for place, each in enumerate(gradients)]
    other = dataclasses.replace(
        SIDE, scalars={f"lr/{place}" if place else "lr": 0.1 * r for place, r in enumerate(rates)}
    )
    assert named(Evidence("update", 0, SIDE, other, gradients, moves)) == expected


def test_a_decay_of_the_moments_that_is_too_small_for_a_float_ends_no_judgement() -> None:
    assert 0.9**8000 == 0
    assert updated(7999, 1.5) == ["update_times"]


@pytest.mark.parametrize(
    ("theirs", "expected"), [([0.1, 0.1, 0.1], "other_hyperparameter"), ([0.1, 0.1, 0.1, 0.01], "late_rate")]
)
def test_a_rate_that_stays_where_the_other_falls_does_not_lag(theirs: list[float], expected: str) -> None:
    """One rate is that of the step before wherever a schedule is forgotten."""
    a, b = (
        dataclasses.replace(SIDE, rates=rates, scalars={"lr": rates[2]})
        for rates in ([0.1, 0.1, 0.01, 0.01][: len(theirs)], theirs)
    )
    assert named(Evidence("hyper-parameters", 2, a, b)) == [expected]


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        (
            [0, 0.25, 0.5, 0.75, 1, 0.96, 0.85, 0.69, 0.5],
            "other_hyperparameter",
        ),  # a warm-up of 4 steps beside one of 2
        ([0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5], "schedule_runs_n_times"),  # the schedule of an epoch of 4
        ([0, 0.25, 0.5, 0.75, 1, 0.985], "schedule_runs_n_times"),
    ],
)
def test_one_rate_is_that_of_a_far_later_step_wherever_a_schedule_falls_again(slow: list[float], expected: str) -> None:
    fast = [0, 0.5, 1, 0.97, 0.88, 0.75, 0.6, 0.45, 0.3]
    a, b = (dataclasses.replace(SIDE, rates=rates, scalars={"lr": rates[1]}) for rates in (slow, fast[: len(slow)]))
    assert named(Evidence("hyper-parameters", 1, a, b)) == [expected]


def test_a_rate_that_falls_an_epoch_later_is_that_of_half_as_many_steps_by_chance() -> None:
    rates = [8] * 4 + [4] * 4 + [2] * 4, [8] * 8 + [4] * 4
    a, b = (dataclasses.replace(SIDE, rates=each, scalars={"lr": each[4]}) for each in rates)
    assert named(Evidence("hyper-parameters", 4, a, b)) == ["other_hyperparameter"]


@pytest.mark.parametrize(("norm", "expected"), [(0.99, "loss_summed"), (1.98, "loss_times")])
def test_a_loss_is_not_off_alone_where_clipping_takes_its_factor_out_of_coarse_gradients(
    norm: float, expected: str
) -> None:
    """As in bf16, where the norm that A clips by is hardly reached."""
    a, b = (
        dataclasses.replace(SIDE, loss=loss, parts=(loss,), scalars={CLIP_NORM: own, CLIP_MOST: 1.0})
        for loss, own in ((1.0, 0.99), (2.0, norm))
    )
    coarse = [dataclasses.replace(each, rounding=0.02) for each in seen(min(norm, 1.0) / 0.99)]
    assert named(Evidence("loss", 0, a, b, coarse)) == [expected]


def test_what_a_step_before_left_is_named_only_if_it_makes_the_difference() -> None:
    """A fifth of a difference just above rounding brings it below."""
    one, other, left = DRAWN[0], DRAWN[0] + 1.0e-6 * DRAWN[1], 0.2e-6 * DRAWN[1]
    length = math.sqrt(float(np.mean(DRAWN[1] ** 2)))
    gradients = [
        SeenTensor("u", "kernel", "parameter", 64, one, other, 0.9e-7 * length, 10.0, strays=(0 * left, left)),
    ]
    assert not named(Evidence("gradient", 1, SIDE, SIDE, gradients))
    whole = [dataclasses.replace(each, strays=(0 * left, 5 * left)) for each in gradients]
    assert named(Evidence("gradient", 1, SIDE, SIDE, whole)) == ["stray_gradients"]


@pytest.mark.parametrize(("size", "is_named"), [(1, False), (64, True)])
def test_any_difference_of_one_number_is_a_multiple_of_its_weight(size: int, is_named: bool) -> None:
    before, side = DRAWN[2], dataclasses.replace(SIDE, passes=2, usual_passes=2, scalars=ADAM | {"weight_decay": 0.5})
    moves = [SeenTensor("u", "bias", "parameter", size, DRAWN[0], DRAWN[0] - 0.0501 * before, 1e-7, 10.0, before)]
    found = named(Evidence("update", 0, dataclasses.replace(SIDE, passes=1), side, (), moves))
    assert ("decay_each_microbatch" in found) == is_named


def test_a_step_without_a_backward_pass_that_is_clipped_ends_no_judgement() -> None:
    sides = [
        dataclasses.replace(SIDE, passes=0, loss=None, parts=(), scalars={CLIP_NORM: norm, CLIP_MOST: 1.0})
        for norm in (2.0, 3.0)
    ]
    assert named(Evidence("gradient", 1, *sides, seen(2 / 3))) == ["clip_by_other_norm"]


@pytest.mark.parametrize(
    ("ratio", "num", "size", "expected"), [(0.7, 1, 1, []), (0.7, 2, 1, ["loss_times"]), (-0.7, 2, 64, [])]
)
def test_a_loss_of_one_number_or_of_another_sign_is_not_divided_by_another_number(
    ratio: float, num: int, size: int, expected: list[str]
) -> None:
    """As where a target entropy has the other sign, and only the logarithm of a temperature has a gradient."""
    side = dataclasses.replace(SIDE, loss=ratio)
    assert named(Evidence("loss", 0, SIDE, side, seen(ratio, size)[:num])) == expected


@pytest.mark.parametrize(("factor", "expected"), [(0.0, []), (1.0, ["divided_by_microbatches"])])
def test_gradients_are_divided_by_no_micro_batches_where_an_adapter_may_have_another_scale(
    factor: float, expected: list[str]
) -> None:
    """The first matrix of an adapter gets no gradient as long as the second is zero."""
    side = dataclasses.replace(SIDE, passes=2)
    first, second = (
        dataclasses.replace(each, one=by * each.one, other=by * each.other)
        for each, by in zip(seen(0.5), (factor, 1.0), strict=True)
    )
    assert named(Evidence("gradient", 0, side, side, [first, second])) == expected


@pytest.mark.parametrize("phase", ["loss", "gradient"])
def test_gradients_that_are_clipped_to_nothing_end_no_judgement(phase: str) -> None:
    clipped = dataclasses.replace(SIDE, scalars={CLIP_NORM: 2.0, CLIP_MOST: 0.0})
    other = dataclasses.replace(SIDE, loss=1.5)
    gradients = [dataclasses.replace(each, norms=(0.0, 1.0), earlier=DRAWN[3]) for each in seen(1.0)]
    gradients = [dataclasses.replace(each, one=np.zeros(8)) for each in gradients]
    assert isinstance(named(Evidence(phase, 1, clipped, other, gradients)), list)


def test_parts_that_draw_other_random_numbers_look_like_a_mean_of_means() -> None:
    """As where two processes have dropout: losses of parts lie about the whole one, and each gradient has its own ratio."""
    gradients = [
        dataclasses.replace(each, other=each.one * (1.1 + 0.1 * number) + 0.1 * DRAWN[3])
        for number, each in enumerate(seen(1.0))
    ]
    parted = dataclasses.replace(SIDE, world=2, loss=1.02, parts=(0.9, 1.14))
    (cause,) = causes(Evidence("loss", 0, SIDE, parted, gradients))
    assert cause.name == "mean_of_means" and "other random numbers, as in dropout" in cause.sentence


@pytest.mark.parametrize("is_clipped", [False, True])
def test_gradients_whose_numbers_are_clipped_are_not_said_to_be_rounded_by_the_size_of_what_is_left(
    is_clipped: bool,
) -> None:
    """A factor of 1.0001 that moves only the numbers below the limit has no direction either."""
    noise = np.random.default_rng(1).normal(size=DRAWN.shape)
    gradients = [
        dataclasses.replace(each, other=each.one + 1e-4 * each.norm * apart / np.linalg.norm(apart))
        for each, apart in zip(seen(1.0), noise, strict=False)
    ]
    side = dataclasses.replace(SIDE, scalars=ADAM | ({CLIP_VALUE: 0.02} if is_clipped else {}))
    assert named(Evidence("gradient", 0, side, side, gradients)) == (
        [] if is_clipped else ["gradients_rounded_to_fp16"]
    )


@pytest.mark.parametrize(
    ("later", "expected"),
    [([8, 8, 4, 4, 2, 2, 1, 1], "other_hyperparameter"), ([8, 8, 4, 4, 3, 2, 1, 1], "schedule_shifted")],
)
def test_twice_the_rate_of_a_schedule_of_halves_is_not_that_of_an_earlier_step(
    later: list[float], expected: str
) -> None:
    a, b = (
        dataclasses.replace(SIDE, rates=rates, scalars={"lr": rates[0]}) for rates in ([*later[2:], 0.5, 0.5], later)
    )
    assert named(Evidence("hyper-parameters", 0, a, b)) == [expected]


@pytest.mark.parametrize(
    ("rates", "expected"), [([0.5, 0.5], "rate_by_processes"), ([0.5, 0.25], "other_hyperparameter")]
)
def test_the_first_rate_of_a_faster_schedule_is_the_share_of_a_micro_batch_by_chance(
    rates: list[float], expected: str
) -> None:
    a, b = (dataclasses.replace(SIDE, rates=own, scalars={"lr": own[0]}) for own in ([1.0, 1.0], rates))
    assert named(Evidence("hyper-parameters", 0, a, dataclasses.replace(b, passes=2))) == [expected]


def test_ranks_that_exchange_nothing_are_named_though_they_normalize_by_their_own_examples() -> None:
    """A healthy run of two ranks with batch normalization does the one, and never the other."""
    buffer = dataclasses.replace(seen(1.1)[0], name="running_mean", role="buffer", kind="norm")
    gradients = [dataclasses.replace(each, other=each.other + 0.1 * DRAWN[2]) for each in seen(1.1)]
    splits = tuple(RankSplit("gradient", each.name, (1,)) for each in gradients)
    for own, expected in ((splits, "forgotten_exchange"), ((), "local_statistics")):
        ranks = dataclasses.replace(SIDE, world=2, loss=1.1, splits=own)
        assert named(Evidence("loss", 0, SIDE, ranks, gradients, [buffer])) == [expected]


@pytest.mark.parametrize(
    ("most", "kept", "expected"), [(0.2, 0.3, ["clip_by_value"]), (0.001, 0.3, []), (100.0, 0.3, [])]
)
def test_numbers_are_clipped_where_none_is_larger_and_what_is_small_is_the_same(
    most: float, kept: float, expected: list[str]
) -> None:
    """A clips nothing. A limit that B exceeds, or that no number of A reaches, makes no difference."""
    gradients = [dataclasses.replace(each, other=kept * each.one + 0.1 * DRAWN[2]) for each in seen(1.0)]
    side = dataclasses.replace(SIDE, scalars=ADAM | {CLIP_VALUE: most})
    assert named(Evidence("gradient", 0, SIDE, side, gradients)) == expected


@pytest.mark.parametrize(
    ("ratio", "calls", "expected"),
    [(2.0, 2, ["clip_each_alone"]), (2.0, 1, ["clip_by_other_norm"]), (1 + 1e-5, 2, [])],
)
def test_several_calls_clip_by_norms_of_their_own_unless_all_of_them_leave_what_one_does(
    ratio: float, calls: int, expected: list[str]
) -> None:
    """A halves its gradients. Clipped once more to a larger norm, they have one factor near 1."""
    of_a, of_b = (
        dataclasses.replace(SIDE, scalars=ADAM | {CLIP_NORM: norm, CLIP_MOST: 1.0, CLIP_CALLS: number})
        for norm, number in ((2.0, 1), (0.5, calls))
    )
    assert named(Evidence("clipping", 0, of_a, of_b, seen(ratio))) == expected


@pytest.mark.parametrize(("share", "is_named"), [(1.0, True), (1.01, False)])
def test_some_gradients_are_clipped_alone_only_where_the_norm_is_theirs(share: float, is_named: bool) -> None:
    norm = 3.0 * share
    side = dataclasses.replace(SIDE, scalars=ADAM | {CLIP_NORM: norm, CLIP_MOST: norm / 2, CLIP_CALLS: 1})
    gradients = [dataclasses.replace(seen(side.factor)[0], norms=(3.0, 3.0 * side.factor)), seen(1.0)[1]]
    assert ("clip_part" in named(Evidence("gradient", 0, SIDE, side, gradients))) == is_named

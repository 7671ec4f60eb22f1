"""What tells one mistake from another that looks like it, and which parameters it is said of."""

import dataclasses

import numpy as np
import pytest

from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.seen_tensor import SeenTensor
from samestep.common.mistakes.table import causes
from samestep.common.steps.gradient_transforms import CLIP_EACH, CLIP_VALUE, EPSILON_BEFORE
from tests.recording.projecting import project

SIDE = Side(1, 2, 2, 1.0, (0.9, 1.1), {0: (1, 2)}, {"lr": 0.1, "weight_decay": 0.5}, (), (), False, ())
DRAWN = np.random.default_rng(0).normal(size=(4, 8))


@pytest.mark.parametrize(("times", "is_named"), [(1.0, True), (20.0, False), (0.05, False)])
def test_a_mean_of_means_leaves_gradients_about_as_large(times: float, is_named: bool) -> None:
    """Where a sampler's passes add to the gradients of a loss that hardly changes, they are many times as large."""
    gradients = [
        SeenTensor(name, "kernel", "parameter", 64, move, times * ratio * move, 1e-7, 10.0)
        for name, move, ratio in zip("uvw", DRAWN, (0.9, 1.1, 1.2), strict=False)
    ]
    whole = dataclasses.replace(SIDE, passes=1, usual_passes=1, loss=0.95, parts=(0.95,))
    names = {each.name for each in causes(Evidence("loss", 0, SIDE, whole, gradients))}
    assert ("mean_of_means" in names) == is_named


@pytest.mark.parametrize(
    ("decayed", "expected"), [("uvw", "from every parameter than"), ("uv", "from kernels than"), ("v", "from v than")]
)
def test_decay_is_said_of_the_parameters_that_lose_it(decayed: str, expected: str) -> None:
    moves = [
        SeenTensor(name, kind, "parameter", 64, move, move - 0.05 * before * (name in decayed), 1e-7, 10.0, before)
        for name, kind, move, before in zip("uvw", ("kernel", "kernel", "bias"), DRAWN, DRAWN[1:], strict=False)
    ]
    once = dataclasses.replace(SIDE, passes=1, usual_passes=1)
    (said,) = [each.sentence for each in causes(Evidence("update", 0, once, once, (), moves)) if "decay" in each.name]
    assert "1 x lr x weight_decay x weight more" in said and expected in said


@pytest.mark.parametrize(
    ("scalars", "said"),
    [
        ({}, "another loss, and no single factor explains it: other targets"),
        (
            {CLIP_VALUE: 0.01},
            "another loss, 2.000 times A's, and clipping by value hides whether every gradient has that factor: other targets",
        ),
    ],
)
def test_gradients_that_are_clipped_by_value_show_no_factor(scalars: dict[str, float], said: str) -> None:
    a, b = (dataclasses.replace(SIDE, loss=loss, scalars=SIDE.scalars | scalars) for loss in (1.0, 2.0))
    gradients = [
        SeenTensor(name, "kernel", "parameter", 64, one, ratio * one, 1e-7, 10.0)
        for name, one, ratio in zip("uv", DRAWN, (1.1, 1.9), strict=False)
    ]
    (cause,) = causes(Evidence("loss", 0, a, b, gradients, gradients))
    assert cause.name == "other_loss" and said in cause.sentence


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        (
            (0.01, 0.01),
            "B subtracts 0.01 x weight more from every parameter than A does: the decay is left out, or another",
        ),
        ((0.01, 0.0), ""),
        ((0.01, 0.02), ""),
    ],
)
def test_a_decay_whose_size_nothing_says_takes_the_same_share_of_several_tensors(
    shares: tuple[float, float], said: str
) -> None:
    side = dataclasses.replace(SIDE, passes=1, usual_passes=1, scalars={})
    moves = [
        SeenTensor(
            name, "kernel", "parameter", 64, 0.1 * one, 0.1 * one - share * start, 1e-9, 10.0 * bool(share), start
        )
        for name, one, start, share in zip("uv", DRAWN[:2], DRAWN[2:], shares, strict=True)
    ]
    told = [
        each.sentence for each in causes(Evidence("update", 0, side, side, (), moves)) if each.name == "other_decay"
    ]
    assert [each.startswith(said) for each in told] == [True] * bool(said)


@pytest.mark.parametrize(("loss", "second", "is_named"), [(2.0, 2.0, True), (0.5, 0.5, True), (2.0, 1.5, False)])
def test_a_factor_of_the_loss_is_left_in_the_gradients_that_are_not_clipped(
    loss: float, second: float, is_named: bool
) -> None:
    """The first is clipped to the same norm in both."""
    a, b = (dataclasses.replace(SIDE, loss=each, scalars=SIDE.scalars | {CLIP_EACH: 1.0}) for each in (1.0, loss))
    gradients = [
        SeenTensor(name, "kernel", "parameter", 64, one, ratio * one, 1e-7, 10.0, norms=(norm, norm * ratio))
        for name, one, norm, ratio in zip("uv", DRAWN, (1.0, 0.4), (1.0, second), strict=False)
    ]
    found = [each.name for each in causes(Evidence("gradient", 0, a, b, gradients))]
    assert found == ["loss_scaled_before_clipping"] * is_named


@pytest.mark.parametrize(("phase", "is_named"), [("gradient", True), ("loss", False)])
def test_a_gradient_of_the_step_before_explains_no_loss(phase: str, is_named: bool) -> None:
    """Where weights hardly move, the gradients of the run that is right are those of its step before, but for rounding."""
    gradients = [
        SeenTensor(name, "kernel", "parameter", 64, one, 1.3 * one, 1e-7, 10.0, earlier=1.3 * one)
        for name, one in zip("uvw", DRAWN, strict=False)
    ]
    b = dataclasses.replace(SIDE, loss=1.1 if phase == "loss" else 1.0)
    assert ("stale_gradient" in {each.name for each in causes(Evidence(phase, 1, SIDE, b, gradients))}) == is_named


@pytest.mark.parametrize(
    ("momentum", "numbers", "expected"),
    [(0.1, 200, "unbiased_statistics"), (0.01, 16, "unbiased_statistics"), (0.15, None, "other_statistics")],
)
def test_variances_alone_differ_by_their_divisor(momentum: float, numbers: int | None, expected: str) -> None:
    """Keras divides by n and PyTorch by n - 1; another momentum of the variance alone is something else."""
    ones, variance, mean, before = np.ones(8), np.abs(DRAWN[0]), DRAWN[1], np.abs(DRAWN[2])
    one = 0.1 * (variance - before) if numbers is None else momentum * (variance - before)
    other = momentum * (variance * (1.0 if numbers is None else numbers / (numbers - 1)) - before)
    moves = [
        SeenTensor("w", "kernel", "parameter", 64, ones, ones, 1e-7, 10.0),
        SeenTensor("mean", "norm", "buffer", 8, mean, mean, 1e-7, 10.0),
        SeenTensor("variance", "norm", "buffer", 8, one, other, 1e-7, 10.0, before),
    ]
    once = dataclasses.replace(SIDE, passes=1, usual_passes=1)
    for evidence in (
        Evidence("update", 1, once, once, (), moves),
        Evidence("update", 1, once, once, (), moves).swapped(),
    ):
        (cause,) = causes(evidence)
        assert cause.name == expected
        assert numbers is None or f"(n is {numbers})" in cause.sentence


@pytest.mark.parametrize("nesterov", [0.0, 1.0])
@pytest.mark.parametrize(("rates", "is_named"), [((0.4, 0.1), True), ((0.1, 0.1), False), ((0.3, 0.1), False)])
def test_a_velocity_holds_the_rates_of_earlier_steps_or_none(
    rates: tuple[float, float], is_named: bool, nesterov: float
) -> None:
    """Keras' velocity is a sum of moves, and PyTorch's one of gradients, which it multiplies by the rate of each step."""
    momentum, (before, rate) = 0.9, (0.4, 0.1)
    gradients, moves = [], []
    for name, gradient, velocity in zip("uv", DRAWN[:2], DRAWN[2:], strict=True):
        sums = momentum * velocity + gradient, momentum * before * velocity + rate * gradient
        torch, keras = rate * sums[0], sums[1]
        if nesterov:
            torch, keras = rate * (gradient + momentum * sums[0]), rate * gradient + momentum * sums[1]
        gradients.append(SeenTensor(name, "kernel", "parameter", 64, gradient, gradient, 1e-7, 10.0))
        moves.append(SeenTensor(name, "kernel", "parameter", 64, -keras, -torch, 1e-7, 10.0))
    scalars = {"lr": rate, "momentum": momentum, "nesterov": nesterov}
    side = dataclasses.replace(SIDE, passes=1, usual_passes=1, scalars=scalars, rates=rates)
    evidence = Evidence("update", 1, side, side, gradients, moves)
    for each, holds in ((evidence, "A"), (evidence.swapped(), "B")):
        said = [cause.sentence for cause in causes(each) if cause.name == "rate_in_velocity"]
        assert len(said) == is_named
        assert all(f"from 0.4 to 0.1: the velocity of {holds} holds" in words for words in said)


def _adam(gradients: np.ndarray, epsilon: float, is_early: bool) -> np.ndarray:
    """Returns the last move of Adam at a learning rate of 0.1.

    Args:
        gradients: [steps, ...].
        epsilon: What is added to the root of the mean of squares.
        is_early: Whether it is added before the bias correction.
    """
    first = second = np.zeros(())
    for each in gradients:
        first, second = 0.9 * first + 0.1 * each, 0.999 * second + 0.001 * each**2
    own, squares = 1 - 0.9 ** len(gradients), np.sqrt(1 - 0.999 ** len(gradients))
    root = (np.sqrt(second) + epsilon) / squares if is_early else np.sqrt(second) / squares + epsilon
    return -0.1 * first / own / root


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("steps", "rate", "size", "is_named"),
    [(1, 1.0, 1e-3, True), (1, 1.5, 1e-3, False), (1, 0.9, 1e-3, False), (1, 1.0, 1e-6, False), (2, 1.0, 1e-3, False)],
)
def test_epsilon_before_the_bias_correction_is_told_from_another_update(
    steps: int, rate: float, size: float, is_named: bool, seed: int
) -> None:
    """Of gradients of about epsilon's size, anything might be called its doing; a larger epsilon makes no move longer."""
    drawn, gradients, moves = np.random.default_rng(seed), [], []
    for name, shape in (("u", (24, 12)), ("v", (24,))):
        seen = size * drawn.normal(size=(steps, *shape))
        one, other = project(_adam(seen, 1e-7, True)), rate * project(_adam(seen, 1e-7, False))
        last, count = project(seen[-1]), seen[-1].size
        gradients.append(SeenTensor(name, "kernel", "parameter", count, last, last, 1e-12, 10.0))
        moves.append(SeenTensor(name, "kernel", "parameter", count, one, other, 1e-9, 10.0))
    scalars = {"lr": 0.1, "betas.0": 0.9, "betas.1": 0.999, "eps": 1e-7}
    torch = dataclasses.replace(SIDE, passes=1, usual_passes=1, scalars=scalars)
    keras = dataclasses.replace(torch, scalars=scalars | {EPSILON_BEFORE: 1.0})
    evidence = Evidence("update", steps - 1, keras, torch, gradients, moves)
    for each, holds in ((evidence, "A"), (evidence.swapped(), "B")):
        said = [cause.sentence for cause in causes(each) if cause.name == "epsilon_before_correction"]
        assert len(said) == is_named
        assert all(f"{holds} has Keras' Adam" in words for words in said)


def test_weights_that_stand_still_are_no_doing_of_epsilon() -> None:
    gradients = [SeenTensor("u", "kernel", "parameter", 64, DRAWN[0], DRAWN[0], 1e-9, 10.0)]
    moves = [SeenTensor("u", "kernel", "parameter", 64, np.zeros(8), DRAWN[1], 1e-9, 10.0)]
    scalars = {"lr": 0.1, "betas.0": 0.9, "betas.1": 0.999, "eps": 1e-7}
    sides = (dataclasses.replace(SIDE, scalars=each) for each in (scalars | {EPSILON_BEFORE: 1.0}, scalars))
    evidence = Evidence("update", 0, *sides, gradients, moves)
    assert [each.name for each in causes(evidence)] == [each.name for each in causes(evidence.swapped())]
    assert "epsilon_before_correction" not in {each.name for each in causes(evidence)}

"""Healthy pairs are the same, and small mistakes are seen."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from samestep.common.judging.recorded.differences import ComparedTensors, RoundingScale
from samestep.common.judging.recorded.findings import _say
from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.weights import WeightRounding
from samestep.common.judging.recorded.yardstick import measure
from samestep.common.mistakes.seen_tensor import SeenTensor
from samestep.common.steps.recorded_run import RecordedRun, RunStep, Sums
from tests.recording.judged import diff, reruns_of, run_of
from tests.recording.numpy_script import Script

SEEDS = range(12)
LAYOUTS = {
    "another order of sums": {"flipped": True},
    "2 ranks": {"world": 2},
    "4 ranks with shards": {"world": 4, "shards": True},
    "4 micro-batches": {"passes": 4},
    "2 ranks with 2 micro-batches": {"world": 2, "passes": 2, "flipped": True},
}
KINDS = {
    "adam": {},
    "sgd, clipped, with a kink": {"optimizer": "sgd", "relu": True, "clip": 0.05},
}


@pytest.mark.parametrize("seeds", [SEEDS[:4], pytest.param(SEEDS, marks=pytest.mark.slow)], ids=["few", "all"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_healthy_pair_differs(layout: str, kind: str, seeds: Sequence[int]) -> None:
    """4 seeds of 10 kinds, 12 on `make test-slow`; the last step of each pair is a whole window in both."""
    for seed in seeds:
        a = Script(seed=seed, **KINDS[kind])
        b = dataclasses.replace(a, **LAYOUTS[layout])
        short = dataclasses.replace(a, steps=a.steps - 1)
        verdict = diff(short, b)
        assert verdict.exit_code == 0, (seed, verdict.headline)
        assert verdict.num_steps == short.steps and verdict.worst < 10
        assert verdict.resolution < 1e-4


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(
    ("mistake", "layout"),
    [
        ("off_by_a_little", {}),
        ("one_norm_off", {}),
        ("other_loss", {}),
        ("gradients_rounded_to_bf16", {"world": 2}),
        ("padded_sample_twice", {"world": 2}),
    ],
)
def test_small_mistakes_are_seen(mistake: str, layout: dict, optimizer: str) -> None:
    for seed in range(5):
        a = Script(seed=seed, steps=2, optimizer=optimizer)
        verdict = diff(a, dataclasses.replace(a, mistake=mistake, **layout))
        assert verdict.exit_code == 4, (seed, verdict.headline)
        assert verdict.first.step == (1 if mistake == "padded_sample_twice" else 0)


def test_float64_needs_no_reruns() -> None:
    a = Script(dtype="float64", steps=4)
    same = diff(a, dataclasses.replace(a, world=2, steps=5), is_measured=False)
    assert (same.kind, same.num_steps) == ("same", 4)
    other = diff(a, dataclasses.replace(a, mistake="off_by_a_little"), is_measured=False)
    assert (other.kind, other.first.step, other.first.phase) == ("unnamed", 0, "gradient")
    assert "every gradient is 1.00010 x A's" in other.headline


def test_without_reruns_small_differences_are_undecided() -> None:
    a = Script(steps=3)
    assert diff(a, dataclasses.replace(a, flipped=True), is_measured=False).kind in ("same", "unknown")
    little = diff(a, dataclasses.replace(a, mistake="off_by_a_little"), is_measured=False)
    assert (little.kind, little.exit_code, little.need) == ("unknown", 3, "command")
    large = diff(a, dataclasses.replace(a, world=2, mistake="sum_for_mean"), is_measured=False)
    assert [cause.name for cause in large.causes] == ["sum_for_mean"]


def test_steps_beyond_the_reruns_are_not_condemned() -> None:
    """A last window that is divided wrongly, at a step that no rerun reached."""
    a = Script(passes=4, steps=6)
    one, *reruns = (run_of(dataclasses.replace(a, perturbed=seed)) for seed in (None, *range(4)))
    other = run_of(dataclasses.replace(a, mistake="last_window_divided_by_all"))
    pairing = pair(one, other)
    reruns = [dataclasses.replace(rerun, steps=[s for s in rerun.steps if s.number < 5]) for rerun in reruns]
    verdict = judge(one, other, measure(one, reruns, pairing))
    assert (verdict.kind, verdict.need, verdict.first.step) == ("unknown", "steps", 5)


def test_a_kink_is_shown_as_one() -> None:
    """A itself, moved in its last bit, falls on the other side of a threshold: nobody can say which side is right."""
    a, b = Script(steps=2, optimizer="sgd"), Script(steps=2, optimizer="sgd", mistake="gradients_off_by_far")
    one, other = run_of(a), run_of(b)
    pairing = pair(one, other)
    tipped = reruns_of(b)
    verdict = judge(one, other, measure(one, tipped, pairing))
    assert (verdict.kind, verdict.need) == ("unknown", "float64")
    assert "gradient of net." in verdict.notes[0] and "within rounding of a threshold (a kink)" in verdict.notes[0]


def broken(run: RecordedRun, phase: str, number: float, is_skipped: bool = False) -> RecordedRun:
    """The same run, a tensor or the loss of whose second step is that number."""
    steps = list(run.steps)
    step = dataclasses.replace(steps[2], is_skipped=is_skipped)
    if phase == "loss":
        steps[2] = dataclasses.replace(step, loss=number)
        return dataclasses.replace(run, steps=steps)
    sums = step.sums[phase]
    projections, square, bits = (each.copy() for each in (sums.projections, sums.square, sums.bits))
    projections[-1], square[-1], bits[-1] = number, number * number, number != 0
    made = dataclasses.replace(sums, projections=projections, square=square, bits=bits)
    steps[2] = dataclasses.replace(step, sums={**step.sums, phase: made})
    return dataclasses.replace(run, steps=steps)


@pytest.mark.parametrize("phase", ["gradient", "weight", "loss"])
@pytest.mark.parametrize("is_measured", [False, True])
def test_only_what_is_broken_alike_is_the_same(phase: str, is_measured: bool) -> None:
    run = run_of(Script(steps=3))
    pairing = pair(run, run)
    reruns = [run_of(Script(steps=3, perturbed=seed)) for seed in range(4 * is_measured)]
    yardstick = measure(run, reruns, pairing) if reruns else None
    for one, other in itertools.product((np.nan, np.inf, -np.inf, 0.0), repeat=2):
        verdict = judge(broken(run, phase, one), broken(run, phase, other), yardstick)
        assert (verdict.kind == "same") == np.array_equal(one, other, equal_nan=True), (one, other, verdict.headline)
        if phase == "gradient" and verdict.kind != "same":
            sides = "in A alone" if other == 0 else "in B alone" if one == 0 else "in both, but not alike"
            assert verdict.headline.endswith(f" is infinite or not a number {sides}")


@pytest.mark.parametrize(("step", "headline"), [(0, "cannot tell"), (2, "same: 2 steps")])
def test_where_both_are_broken_nothing_is_said_to_be_the_same(step: int, headline: str) -> None:
    """As of a model that is NaN from its first step on, whatever the two scripts do."""
    run = run_of(Script(steps=4, optimizer="sgd"))
    steps = list(run.steps)
    for number, each in enumerate(steps[step + 1 :], step + 1):
        sums = each.sums["weight"]
        nothing = np.full_like(sums.square, np.nan)
        whole = dataclasses.replace(sums, projections=np.full_like(sums.projections, np.nan), square=nothing)
        steps[number] = dataclasses.replace(each, sums={**each.sums, "weight": whole})
    broken_run = dataclasses.replace(run, steps=steps)
    verdict = judge(broken_run, broken_run)
    assert verdict.headline == headline and verdict.exit_code == (3 if step == 0 else 0)
    assert verdict.notes[0].startswith(f"step {step} leaves parameters of both infinite or NaN")


@pytest.mark.parametrize("projected", [np.nan, np.inf])
def test_a_parameter_that_is_infinite_from_the_start_hides_nothing(projected: float) -> None:
    """As a causal mask that is kept as a frozen parameter, or the bound of a number."""
    run = run_of(Script(steps=3))
    place, steps = [each.name for each in run.tensors].index("net.unused.weight"), list(run.steps)
    for number, each in enumerate(steps):
        held = each.sums["weight"]
        square, projections = held.square.copy(), held.projections.copy()
        square[place], projections[place] = np.inf, projected
        made = dataclasses.replace(held, square=square, projections=projections)
        steps[number] = dataclasses.replace(each, sums={**each.sums, "weight": made})
    masked = dataclasses.replace(run, steps=steps)
    assert judge(masked, masked).headline == "same: 3 steps"


def test_what_overflowed_in_a_step_that_both_skip_is_no_difference() -> None:
    run = run_of(Script(steps=3))
    a, b = (broken(run, "gradient", number, is_skipped=True) for number in (np.nan, -np.inf))
    assert judge(a, b).kind == "same"
    assert judge(run, run).headline == "same: 3 steps"
    assert judge(dataclasses.replace(run, steps=list(run.steps)[:2]), run).headline == "same: 1 step"


@pytest.mark.parametrize(
    ("numbers", "tensors", "kind"), [(1.9, 1, "unknown"), (9.0, 1, "unnamed"), (1.9, 9, "unnamed")]
)
def test_a_number_that_rounding_turned_around_is_no_mistake(numbers: float, tensors: int, kind: str) -> None:
    """Adam's first update moves a number by the rate, whichever way; a gradient within rounding of 0 decides which."""
    script = Script(steps=3)
    run = run_of(script)
    reruns = reruns_of(script)
    steps = list(run.steps)
    held = steps[1].sums["weight"]
    moved = held.projections.copy()
    names = [each.name for each in run.tensors]
    places = [names.index("net.head.weight"), *range(len(names))][:tensors]
    moved[places] += numbers * script.rate * np.array([1, -1] * 4)
    steps[1] = dataclasses.replace(
        steps[1], sums={**steps[1].sums, "weight": dataclasses.replace(held, projections=moved, bits=held.bits + 1)}
    )
    pairing = pair(run, run)
    verdict = judge(run, dataclasses.replace(run, steps=steps), measure(run, reruns, pairing))
    assert verdict.first is not None and (verdict.first.step, verdict.first.phase) == (0, "update"), verdict.headline
    assert verdict.kind == kind and (verdict.need == "float64") == (kind == "unknown"), verdict.headline


def sums(*norms: float) -> Sums:
    return Sums(np.repeat(np.array([norms]).T, 8, 1), np.square(norms), np.ones(len(norms), np.uint64))


def test_weights_that_stay_zero_may_have_moved_as_far_as_rounding_of_all_gradients_moves_them() -> None:
    """The last bias of an encoder of pairs cancels: where both calls are one, what is left of its gradient adds up."""
    rest, weights, gradients = WeightRounding(), RoundingScale(np.array([0.0, 2.0])), RoundingScale(np.ones(2))
    still = sums(0.0, 0.0), sums(0.0, 0.0)
    of_both = ComparedTensors(*still, gradients, np.zeros(2), np.zeros(2))
    for number, moved in ((0, 0.1), (0, 0.1), (1, 0.2), (4, 0.5)):  # of the two steps between nothing is known
        found = rest.scaled(weights, RunStep(number, scalars={"lr": 0.1}), still, of_both)
        assert found.rounding == pytest.approx([moved, 2.0])


def test_weights_may_be_as_far_apart_as_gradients_that_are_rounding_moved_them_until_one_is_more() -> None:
    """Adam divides a gradient by its own size; momentum goes on where it is nothing."""
    rest, weights, gradients = WeightRounding(), RoundingScale(np.full(3, 1e-7)), RoundingScale(np.full(3, 1e-8))
    rest.scaled(weights, RunStep(-1), (sums(1.0, 1.0, 1.0), sums(1.0, 1.0, 1.0)), None)
    for number, of_b, moved in ((0, 9e-8, 0.1), (1, 0.0, 0.2), (2, 0.1, 0.2), (3, 9e-8, 0.2)):
        now, both = (sums(1.0, 1.0, 1.0), sums(*[1.1 + number / 10] * 3)), (sums(0.0, 0.1, 0.0), sums(of_b, 0.1, 0.0))
        found = rest.scaled(weights, RunStep(number), now, ComparedTensors(*both, gradients, np.zeros(3), np.zeros(3)))
        assert found.rounding == pytest.approx([moved, 1e-7, 1e-7])


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([3.05e-5, 3.05e-5], "every gradient is 3.05e-05 x A's"),
        ([1.0, 0.5], "the gradient of 1 alone differs: it is 0.500 x A's"),
        ([1.0, 0.5, 0.5], "the gradients of 1, 2 alone differ: they are 0.500 x A's"),
        ([1.0, 0.5, 0.25], "the gradient of 2 is off by 0.75 of its norm; 2 of 3 gradients differ"),
        ([1.0, 0.5, 0.0], "in B, 2 has no gradient or one of zero, and in A it has another; 2 of 3 gradients differ"),
    ],
)
def test_a_factor_of_some_gradients_is_said(ratios: list[float], said: str) -> None:
    one = np.arange(1.0, 9.0)
    seen = {
        str(place): SeenTensor(str(place), "kernel", "parameter", 8, one, ratio * one, 1e-6, 1.0)
        for place, ratio in enumerate(ratios)
    }
    differing = {name for name, each in seen.items() if each.differs}
    assert _say(seen, differing, max(differing), "")[0] == said


def test_a_step_whose_record_has_no_weights_may_be_restored_as_well() -> None:
    run = run_of(Script())
    steps = [
        dataclasses.replace(step, sums={"gradient": step.sums["gradient"]}, counts={"restored": 1})
        if step.number >= 0
        else step
        for step in run.steps
    ]
    without = dataclasses.replace(run, steps=steps)
    assert judge(without, without).kind == "same"

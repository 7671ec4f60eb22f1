"""A run that goes on with the weights of another one is compared from there on."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from samestep.common.steps.recorded_run import RunStep
from samestep.experiments.recording.diffing import diff, judge_as_kept
from samestep.experiments.recording.reruns import Reruns
from tests.recording.judged import Fake, side
from tests.recording.numpy_script import LOST, Script


def second_half(run: Reruns, after: int, **changes: object) -> Reruns:
    """The steps after one of them, as a script records them that loads what was saved there."""
    whole = list(run.run.steps)
    start = next(step for step in whole if step.number == after)
    rest = [dataclasses.replace(step, number=step.number - after - 1) for step in whole if step.number > after]
    rest[0] = dataclasses.replace(rest[0], **changes)
    steps = [RunStep(-1, sums={"weight": start.sums["weight"]}), *rest]
    return dataclasses.replace(run, run=dataclasses.replace(run.run, steps=steps))


@pytest.mark.parametrize("is_a", [False, True])
def test_a_resumed_run_is_compared_with_the_steps_that_it_takes(tmp_path: Path, is_a: bool) -> None:
    rerun = Fake()
    whole = side(Script(), tmp_path, "A", rerun)
    half = second_half(whole, 2)
    for found in (diff(*((half, whole) if is_a else (whole, half)), 20), judge_as_kept(whole, half)[0]):
        assert found.verdict.headline == "same: 3 steps" and not rerun.runs
        who = "BA" if is_a and found.verdict.notes[0].startswith("A") else "AB"
        assert f"{who[1]} begins with the weights that {who[0]} had after step 2" in found.verdict.notes[0]


def test_what_a_resumed_run_has_lost_is_said(tmp_path: Path) -> None:
    whole = side(Script(), tmp_path, "A", Fake())
    step = next(step for step in whole.run.steps if step.number == 3)
    half = second_half(whole, 2, scalars={**step.scalars, "lr": 0.01})
    verdict = diff(whole, half, 20).verdict
    assert verdict.exit_code == 4 and verdict.headline.startswith("not the same: step 0, hyper-parameters: ")
    assert "so step 0 is step 3 of A" in verdict.notes[0]


SGD = {"optimizer": "momentum"}


@pytest.mark.parametrize("is_a", [False, True])
@pytest.mark.parametrize(
    ("lost", "options", "named"),
    [
        ("optimizer_state_lost", {}, "optimizer_state_lost"),
        ("optimizer_state_lost", {"decay": 0.0}, "optimizer_state_lost"),
        ("optimizer_state_lost", SGD, "optimizer_state_lost"),
        ("optimizer_state_lost", SGD | {"nesterov": True}, "optimizer_state_lost"),
        ("moments_lost", {}, "optimizer_state_lost"),
        ("step_count_lost", {}, "step_count_lost"),
    ],
)
def test_it_is_named_what_an_optimizer_has_lost(
    tmp_path: Path, lost: str, options: dict[str, object], named: str, is_a: bool
) -> None:
    whole, other = (side(Script(**options, mistake=mistake), tmp_path, "A", Fake()) for mistake in ("", lost))
    half = second_half(other, LOST - 1)
    verdict = diff(*((half, whole) if is_a else (whole, half)), 20).verdict
    assert [cause.name for cause in verdict.causes] == [named], verdict.headline
    assert verdict.exit_code == 4 and verdict.headline.startswith("not the same: step 0, update, ")
    assert f"{'A' if is_a else 'B'}'s optimizer" in verdict.headline or named == "step_count_lost"
    assert f"step {LOST + 1} of its count were step 1" in verdict.headline or named != "step_count_lost"


@pytest.mark.parametrize("optimizer", ["adam", "momentum"])
@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize(
    "wrong", ["other_betas", "decay_lost", "no_root", "update_times", "position_lost", "off_by_a_little"]
)
def test_nothing_else_is_a_lost_state(tmp_path: Path, wrong: str, optimizer: str, is_resumed: bool) -> None:
    script = Script(optimizer=optimizer)
    whole, other = (side(dataclasses.replace(script, mistake=each), tmp_path, "A", Fake()) for each in ("", wrong))
    if is_resumed:  # with the weights of the other one, whatever it did before
        start = next(step for step in whole.run.steps if step.number == LOST - 1)
        steps = [
            dataclasses.replace(step, number=step.number - LOST) for step in other.run.steps if step.number >= LOST - 1
        ]
        steps[0] = RunStep(-1, sums={"weight": start.sums["weight"]})
        other = dataclasses.replace(other, run=dataclasses.replace(other.run, steps=steps))
    for pair_of in ((whole, other), (other, whole)):
        verdict = diff(*pair_of, 20).verdict
        assert "optimizer_state_lost" not in [cause.name for cause in verdict.causes], verdict.headline


@pytest.mark.parametrize("is_a", [False, True])
def test_a_resumed_run_whose_data_start_over_has_lost_its_place_and_the_whole_one_has_not(
    tmp_path: Path, is_a: bool
) -> None:
    whole, other = (side(Script(mistake=each), tmp_path, "A", Fake()) for each in ("", "position_lost"))
    half = second_half(whole, LOST - 1)
    first, *rest = half.run.steps
    given = {step.number - LOST: step.rows for step in other.run.steps}
    steps = [first, *(dataclasses.replace(step, rows=given[step.number], loss=1.5 * step.loss) for step in rest)]
    half = dataclasses.replace(half, run=dataclasses.replace(half.run, steps=steps))
    verdict = diff(*((half, whole) if is_a else (whole, half)), 20).verdict
    assert [cause.name for cause in verdict.causes] == ["position_lost"], verdict.headline
    who = "AB" if is_a else "BA"
    assert f"{who[0]} is given the examples of {who[1]}'s own step {LOST - 2}" in verdict.headline


@pytest.mark.parametrize("is_a", [False, True])
@pytest.mark.parametrize("is_lost", [False, True])
def test_an_average_that_a_resumed_run_may_have_lost_is_said(tmp_path: Path, is_a: bool, is_lost: bool) -> None:
    """The last tensor stands for an average of the weights."""
    run = side(Script(), tmp_path, "A", Fake())
    tensors = (*run.run.tensors[:-1], dataclasses.replace(run.run.tensors[-1], name="follower.x", role="follower"))
    header = dataclasses.replace(run.run.header, tensors=tensors)
    whole = dataclasses.replace(run, run=dataclasses.replace(run.run, header=header))
    half = second_half(whole, LOST - 1)
    first, *rest = half.run.steps
    sums = first.sums["weight"]
    begun = dataclasses.replace(sums, projections=sums.projections + is_lost * np.eye(len(tensors), 1)[::-1])
    steps = [dataclasses.replace(first, sums={"weight": begun}), *rest]
    half = dataclasses.replace(half, run=dataclasses.replace(half.run, steps=steps))
    verdict = diff(*((half, whole) if is_a else (whole, half)), 20).verdict
    who = "A" if is_a else "B"
    said = f"follower.x of a network that no optimizer updates start from other weights and are not compared, but {who} continues"
    assert verdict.kind == "same" and [said in note for note in verdict.notes].count(True) == is_lost


def with_rates(run: Reruns, rates: Sequence[float]) -> Reruns:
    """A record of the same steps with other learning rates."""
    steps = [
        dataclasses.replace(step, scalars={**step.scalars, "lr": rates[step.number]}) if step.number >= 0 else step
        for step in run.run.steps
    ]
    return dataclasses.replace(run, run=dataclasses.replace(run.run, steps=steps))


COSINE, STEPS = [1 + math.cos(math.pi * step / 6) for step in range(6)], [8.0] * 4 + [4.0] * 4 + [2.0] * 4


@pytest.mark.parametrize("is_a", [False, True])
@pytest.mark.parametrize(
    ("whole", "half", "named"),
    [
        (COSINE, [COSINE[LOST] * rate / COSINE[0] for rate in COSINE], "uses 0.500 times the learning rates with"),
        (COSINE, [COSINE[LOST], *COSINE[1:]], "uses the learning rates with which the other run began"),
        (STEPS, [4.0] * 4 + [2.0] * 2, "uses 0.500 times the learning rates with which the other run began"),
        (STEPS, [8.0] * 2 + [4.0] * 4, "lr is 4 in A and 8 in B"),
        ([2.0**-step for step in range(6)], [2.0**-step for step in (4, 5, 6)], "lr is 0.125 in A and 0.0625 in B"),
    ],
)
def test_a_schedule_whose_state_alone_is_lost_goes_on_from_the_rate_of_the_optimizer(
    tmp_path: Path, whole: list[float], half: list[float], named: str, is_a: bool
) -> None:
    run = side(Script(steps=len(whole)), tmp_path, "A", Fake())
    one, other = with_rates(run, whole), with_rates(second_half(run, len(whole) // 2 - 1), half)
    verdict = diff(*((other, one) if is_a else (one, other)), 20).verdict
    assert verdict.exit_code == 4 and [cause.name for cause in verdict.causes] == [
        "other_hyperparameter" if " in A and " in named else "schedule_restarted"
    ], verdict.headline
    assert is_a or named in verdict.headline


@pytest.mark.parametrize("is_a", [False, True])
def test_a_schedule_that_starts_anew_where_a_run_is_resumed_is_named(tmp_path: Path, is_a: bool) -> None:
    whole, other = (side(Script(mistake=each), tmp_path, "A", Fake()) for each in ("", "schedule_restarted"))
    half = second_half(other, LOST - 1)
    verdict = diff(*((half, whole) if is_a else (whole, half)), 20).verdict
    assert [cause.name for cause in verdict.causes] == ["schedule_restarted"], verdict.headline
    assert f"{'A' if is_a else 'B'} uses the learning rates with which the other run began" in verdict.headline


def test_another_rate_is_no_schedule_that_starts_anew(tmp_path: Path) -> None:
    whole = side(Script(), tmp_path, "A", Fake())
    rates = {
        step.number: {**step.scalars, "lr": 0.3 * step.scalars["lr"]} for step in whole.run.steps if step.number >= 0
    }
    steps = [dataclasses.replace(step, scalars=rates.get(step.number, {})) for step in whole.run.steps]
    other = dataclasses.replace(whole, run=dataclasses.replace(whole.run, steps=steps))
    verdict = diff(whole, second_half(other, LOST - 1), 20).verdict
    assert [cause.name for cause in verdict.causes] == ["other_hyperparameter"], verdict.headline


def test_other_weights_are_no_resumed_run(tmp_path: Path) -> None:
    a, b = (side(Script(seed=seed), tmp_path, "A", Fake()) for seed in (0, 1))
    assert "before the first step, initial weights" in diff(a, b, 20).verdict.headline

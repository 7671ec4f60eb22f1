"""A run that goes on with the weights of another one is compared from there on."""

import dataclasses
from pathlib import Path

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

"""A run that goes on with the weights of another one is compared from there on."""

import dataclasses
from pathlib import Path

import pytest

from samestep.common.steps.recorded_run import RunStep
from samestep.experiments.recording.diffing import diff, judge_as_kept
from samestep.experiments.recording.reruns import Reruns
from tests.recording.judged import Fake, side
from tests.recording.numpy_script import Script


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


def test_other_weights_are_no_resumed_run(tmp_path: Path) -> None:
    a, b = (side(Script(seed=seed), tmp_path, "A", Fake()) for seed in (0, 1))
    assert "before the first step, initial weights" in diff(a, b, 20).verdict.headline

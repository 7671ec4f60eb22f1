"""Runs of few digits are the same only where all that was recorded differs by less than a mistake would."""

import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from samestep.common.judging.recorded.differences import RoundingScale
from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.sensitivity import SHOWN
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.judging.recorded.yardstick import Yardstick
from samestep.common.steps.projections import PROJECTIONS
from samestep.common.steps.recorded_run import RecordedRun, RunStep
from samestep.experiments.printing.diff_report import facts_of_diff
from samestep.experiments.recording.diffing import Diffed
from samestep.experiments.recording.reruns import Reruns
from tests.recording.judged import run_of
from tests.recording.numpy_script import Script, _bf16, run
from tests.recording.projecting import project

NOTHING = "nothing that was recorded differs: every loss, gradient and update of B is that of A"


class Coarse(Yardstick):
    """Perturbations as large as bf16's rounding."""

    def of(self, number: int, phase: str, sums: object) -> RoundingScale:
        return RoundingScale(1e-2 * sums.norm + 1e-6)

    def of_loss(self, number: int, loss: float) -> RoundingScale:
        return RoundingScale(np.array([1e-2 * abs(loss)]))


def coarsely(a: RecordedRun, b: RecordedRun) -> RecordedVerdict:
    pairing = pair(a, b)
    return judge(a, b, Coarse(1e-2 * pairing.sizes, pairing))


def with_sums(run: RecordedRun, place: int, phase: str, **changes: np.ndarray) -> RecordedRun:
    """The same run, of which something else is known of the tensors in a phase of a step."""
    steps = [*run.steps]
    sums = dict(steps[place].sums)
    steps[place] = dataclasses.replace(steps[place], sums=sums | {phase: dataclasses.replace(sums[phase], **changes)})
    return dataclasses.replace(run, steps=steps)


@pytest.mark.parametrize(("rounding", "expected"), [(1e-2, ["loss_summed"]), (0.09, [])])
def test_the_loss_alone_has_a_factor_only_if_rounding_does_not_hide_that_of_the_gradients(
    rounding: float, expected: list[str]
) -> None:
    class Coarser(Coarse):
        def of(self, number: int, phase: str, sums: object) -> RoundingScale:
            return RoundingScale(rounding * sums.norm + 1e-6)

    a, b = (run_of(Script(steps=2, mistake=each)) for each in ("", "loss_summed"))
    pairing = pair(a, b)
    verdict = judge(a, b, Coarser(rounding * pairing.sizes, pairing))
    assert (verdict.exit_code, [cause.name for cause in verdict.causes]) == (4, expected)


@pytest.mark.parametrize("mistake", ["off_by_a_little", "one_norm_off", "other_decay"])
def test_a_blind_yardstick_decides_nothing(mistake: str) -> None:
    """Rounding of a hundredth hides gradients or updates that are off by a ten-thousandth or more."""
    script = Script(steps=2, optimizer="sgd")
    a, b = (run_of(dataclasses.replace(script, mistake=each)) for each in ("", mistake))
    verdict = coarsely(a, b)
    assert (verdict.kind, verdict.exit_code, verdict.need) == ("unknown", 3, "float64")


class Coarsest(Yardstick):
    """Gradients that may round by a fifth of their norm."""

    def of(self, number: int, phase: str, sums: object) -> RoundingScale:
        return RoundingScale(0.2 * sums.norm + 1e-6)


@pytest.mark.parametrize(
    ("spread", "said"),
    [
        (None, "of the norm, which was not measured"),  # 2.0e-01, or more of a gradient that is all rounding
        (0.3, "a run differs from itself by 3.0e-01 of the norm"),
        (1e-6, ""),  # no rerun showed a jump
    ],
)
def test_only_where_reruns_showed_it_it_is_said_that_a_run_differs_from_itself(spread: float | None, said: str) -> None:
    a, b = (run_of(Script(steps=2, optimizer="sgd", mistake=each)) for each in ("", "off_by_a_little"))
    pairing = pair(a, b)
    norm = pairing.of([*a.steps][1].sums["gradient"], 0).norm
    spreads = {} if spread is None else {(0, "gradient"): spread * norm}
    verdict = judge(a, b, Coarsest(1e-2 * pairing.sizes, pairing, spreads))
    assert (verdict.kind, verdict.need) == ("unknown", "float64")
    assert [said in each for each in verdict.notes] == [True] if said else not verdict.notes


def test_the_note_of_a_jump_names_what_reruns_moved_most_and_not_what_has_its_layers_yardstick() -> None:
    a, b = (run_of(Script(steps=2, optimizer="sgd", mistake=each)) for each in ("", "off_by_a_little"))
    pairing = pair(a, b)
    gradient = pairing.of([*a.steps][1].sums["gradient"], 0)
    names = [tensor.name for tensor in pairing.tensors]
    shares = np.array([0.4 if name == "net.embed.weight" else 0.3 for name in names])
    spreads = {(step, "weight"): pairing.sizes for step in range(2)} | {
        (step, "gradient"): np.nan_to_num(shares * gradient.norm) for step in range(2)
    }
    yardstick = Yardstick(1e-7 * np.ones(len(names)), pairing, spreads, dict.fromkeys(range(2), 1.0), last=1)
    share = yardstick.of(0, "gradient", gradient).rounding / np.maximum(gradient.norm, 1e-9)
    assert share[names.index("net.norm.weight")] > 1, "by the other one of its layer"
    assert (
        "step 0, gradient of net.embed.weight: a run differs from itself by 4.0e-01" in judge(a, b, yardstick).notes[0]
    )


@pytest.mark.parametrize(("off", "kind"), [(0.0, "same"), (1e-5, "same"), (6e-5, "unknown"), (3e-3, "unknown")])
def test_what_differs_by_less_than_a_mistake_is_the_same_however_far_rounding_may_go(off: float, kind: str) -> None:
    run = run_of(Script(steps=2, optimizer="sgd"))
    sums = [*run.steps][2].sums["gradient"]
    verdict = coarsely(run, with_sums(run, 2, "gradient", projections=sums.projections * (1 + off)))
    assert verdict.kind == kind
    if kind == "same":
        assert 0.5 * off / SHOWN <= verdict.resolution <= 2 * off / SHOWN  # projections show the norm within 25 %


def said(verdict: RecordedVerdict, run: RecordedRun) -> list[str]:
    side = Reruns(run, Path(run.name), "A")
    return facts_of_diff(Diffed(verdict, side, side))


def changed(run: RecordedRun, change: Callable[[RunStep], RunStep]) -> RecordedRun:
    """The same run, each step of which is changed."""
    return dataclasses.replace(run, steps=[change(step) for step in run.steps])


def test_steps_without_tensors_are_not_vouched_for() -> None:
    """Gradients off by a hundredth at step 1, of which only the loss was recorded, and the loss has few digits."""

    def few(step: RunStep) -> RunStep:
        return dataclasses.replace(step, loss=step.loss and float(_bf16(np.array([step.loss]))[0]))

    def first_only(step: RunStep) -> RunStep:
        return step if step.number < 1 else dataclasses.replace(step, sums=None)

    a, b = (
        changed(run_of(Script(steps=10, rate=1e-5, mistake=mistake)), few)
        for mistake in ("", "gradients_off_at_random")
    )
    assert [step.loss for step in a.steps] == [step.loss for step in b.steps]
    assert coarsely(a, b).exit_code == 4
    for one, other in ((a, b), (a, a)):
        for lacking in ((True, True), (True, False), (False, True)):
            sides = (
                changed(each, first_only) if sparse else each
                for each, sparse in zip((one, other), lacking, strict=True)
            )
            verdict = coarsely(*sides)
            assert (verdict.kind, verdict.need) == ("unknown", "float64"), (lacking, verdict.headline)
            assert "9 of 10 steps lack tensors" in verdict.notes[0] and "--every 1" in verdict.notes[0]
            assert NOTHING not in said(verdict, a)


def test_nothing_differs_only_where_the_bits_are_the_same() -> None:
    run = run_of(Script(steps=2, optimizer="sgd"))
    verdict = coarsely(run, run)
    assert (verdict.kind, verdict.resolution) == ("same", 0.0) and NOTHING in said(verdict, run)
    sums = [*run.steps][2].sums["gradient"]
    verdict = coarsely(run, with_sums(run, 2, "gradient", bits=sums.bits + (sums.square > 0).astype(np.uint64)))
    assert verdict.kind == "same" and 0 < verdict.resolution < 1e-5
    assert NOTHING not in said(verdict, run)


@pytest.mark.parametrize("lacking", ["A", "B"])
def test_a_loss_that_only_one_has_is_not_the_same_loss(lacking: str) -> None:
    run = run_of(Script(steps=2, optimizer="sgd"))
    without = changed(run, lambda step: dataclasses.replace(step, loss=None if step.number == 1 else step.loss))
    verdict = coarsely(*((without, run) if lacking == "A" else (run, without)))
    assert verdict.kind == "unknown" and NOTHING not in said(verdict, run)
    assert coarsely(without, without).kind == "same"


@pytest.mark.parametrize("is_product", [False, True])
def test_projections_rarely_show_less_than_their_share(is_product: bool) -> None:
    """The chance is that all eight are small, which few draws decide, times that of such eight to have a small sum of squares."""
    draw, most = np.random.default_rng(0), SHOWN * math.sqrt(PROJECTIONS)
    drawn = draw.standard_normal(2_000_000)
    drawn = drawn * draw.standard_normal(len(drawn)) if is_product else drawn
    small = drawn[np.abs(drawn) < most]
    all_small = (len(small) / len(drawn)) ** PROJECTIONS
    chance = all_small * np.mean((draw.choice(small, (200_000, PROJECTIONS)) ** 2).sum(1) < most**2)
    expected = 1.3e-7 if is_product else 7e-12
    assert 0.8 * expected < chance < 1.25 * expected


def test_outer_products_are_projected_as_two_sums_of_random_signs() -> None:
    """What the chance above is computed from, with the signs of a record."""
    draw = np.random.default_rng(0)
    left, right = draw.standard_normal((2, 400, 64))
    shown = [
        project(np.outer(a, b)) / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in zip(left, right, strict=True)
    ]
    expected = np.prod(draw.standard_normal((2, 200_000)), 0)
    for bound in (0.03, 0.1, 0.3, 1.0):
        share, least = np.mean(np.abs(expected) < bound), np.mean(np.abs(shown) < bound)
        assert abs(least - share) < 5 * math.sqrt(share / np.size(shown))


def test_the_command_calls_a_run_in_bf16_and_its_twin_the_same(tmp_path: Path) -> None:
    """Nothing has to be run again for it, so the commands of these records need not exist."""
    for name in ("a", "b"):
        run(Script(steps=3, products="bfloat16"), tmp_path / name)
    line = [sys.executable, "-m", "samestep", "diff", "a", "b"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("same: 3 steps\n"), done.stdout + done.stderr
    assert NOTHING in " ".join(done.stdout.split())

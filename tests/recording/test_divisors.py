"""Between two frameworks, running variances differ by their divisor, which no step shows: the rest is compared."""

import dataclasses
import sys
from collections.abc import Callable

import numpy as np
import pytest

from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.judging.recorded.yardstick import measure
from samestep.common.steps.projections import sum_of_bits
from samestep.common.steps.recorded_run import RecordedRun
from tests.recording.judged import reruns_of, run_of
from tests.recording.numpy_script import SHAPES, Script
from tests.recording.projecting import project

NAME, N, SHORT = "net.running_mean", 48, 3
"""The buffer that is made a running variance; n of all batches, and the step whose batch is cut to half of it."""
Moved = Callable[[int, int], tuple[float, float]]
"""(step, n) -> what the step keeps of the running variance, and what it takes of the batch's, which is divided by n."""


def biased(step: int, n: int) -> tuple[float, float]:
    return 0.9, 0.1


def unbiased(step: int, n: int) -> tuple[float, float]:
    return 0.9, 0.1 * n / (n - 1)


def idle(moved: Moved) -> Moved:
    """Step 4 has a batch without variance."""
    return lambda step, n: (0.9, 0.0) if step == 4 else moved(step, n)


def slower(step: int, n: int) -> tuple[float, float]:
    return 0.95, 0.05


def growing(step: int, n: int) -> tuple[float, float]:
    return (0.9, 0.1 * n / (n - 1)) if step < SHORT else (1.1, 0.1)


def with_variance(run: RecordedRun, framework: str, moved: Moved, every: int = 1) -> RecordedRun:
    draw, kept, steps = np.random.default_rng(5), np.ones(SHAPES[NAME], np.float32), []
    place = [each.name for each in run.tensors].index(NAME)
    for step in run.steps:
        if step.number >= 0:
            left, taken = moved(step.number, N // 2 if step.number == SHORT else N)
            kept = (left * kept + taken * draw.chisquare(4, kept.shape)).astype(np.float32)
        sums = dict(step.sums or {})
        if step.number > 0 and step.number % every:
            steps.append(dataclasses.replace(step, sums=None))
            continue
        weight = dataclasses.replace(
            sums["weight"], **{name: value.copy() for name, value in vars(sums["weight"]).items()}
        )
        weight.projections[place], weight.square[place] = project(kept), float(kept @ kept)
        weight.bits[place] = sum_of_bits(kept)
        steps.append(dataclasses.replace(step, sums=sums | {"weight": weight}))
    return dataclasses.replace(run, steps=steps, header=dataclasses.replace(run.header, framework=framework))


def verdict(
    a: Moved, b: Moved, frameworks: tuple[str, str] = ("tf", "torch"), mistake: str = "", every: int = 1
) -> RecordedVerdict:
    script = Script(optimizer="sgd")
    one, other = run_of(script), run_of(dataclasses.replace(script, mistake=mistake))
    one, other = (with_variance(*each, every) for each in ((one, frameworks[0], a), (other, frameworks[1], b)))
    reruns = [with_variance(each, frameworks[0], a, every) for each in reruns_of(script)]
    return judge(one, other, measure(one, reruns, pair(one, other)))


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize(
    ("a", "b", "sides"), [(biased, unbiased, "AB"), (unbiased, biased, "BA"), (idle(biased), idle(unbiased), "AB")]
)
def test_the_rest_is_the_same(a: Moved, b: Moved, sides: str, every: int) -> None:
    found = verdict(a, b, every=every)
    assert found.headline == "same, but for running variances: 6 steps"
    assert found.exit_code == 0
    said = f"({NAME}) move by sums of squares over n in {sides[0]}, and over n - 1 in {sides[1]} (n is about 48)"
    assert any(said in each for each in found.notes)


@pytest.mark.parametrize(
    ("a", "b", "frameworks", "mistake", "every", "expected"),
    [
        (biased, unbiased, ("torch", "torch"), "", 1, "step 0, update, layer net: only running statistics differ"),
        (biased, slower, ("tf", "torch"), "", 1, "step 0, update, layer net: only running statistics differ"),
        (biased, growing, ("tf", "torch"), "", 1, f"step {SHORT}, update, layer net: only running statistics differ"),
        (biased, growing, ("tf", "torch"), "", 2, "step 4, update, layer net: "),
        (biased, unbiased, ("tf", "torch"), "gradients_not_cleared", 1, "step 1, "),
    ],
)
def test_what_else_differs_is_told(
    a: Moved, b: Moved, frameworks: tuple[str, str], mistake: str, every: int, expected: str
) -> None:
    found = verdict(a, b, frameworks, mistake, every)
    assert found.headline.startswith(f"not the same: {expected}")
    assert found.exit_code == 4


def test_a_difference_that_is_first_seen_after_some_steps_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "N", 300_000)
    assert verdict(biased, unbiased).headline == "same, but for running variances: 6 steps"

"""Where rounding moves a step by as much as its gradients are, four reruns do not say how far it may move it."""

import dataclasses
import math

import numpy as np
import pytest

from samestep.common.judging.recorded.differences import THRESHOLD
from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.judging.recorded.yardstick import CERTAIN, CHAOTIC, coarser, measure
from samestep.common.steps.recorded_run import RecordedRun, Sums
from tests.recording.judged import recorded
from tests.recording.numpy_script import Script

STEP = 2
HEALTHY = 3.68
"""Of 500 healthy pairs, the most."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    found = recorded(Script(steps=4), tmp_path_factory.mktemp("chaos"))
    return dataclasses.replace(found, steps=[*found.steps])


def moved(run: RecordedRun, share: float, seed: int, only: str = "") -> RecordedRun:
    """The run, with gradients of one step that are off by a share of their norms."""
    chosen = np.array([only in tensor.name for tensor in run.tensors])
    steps = []
    for step in run.steps:
        if step.number == STEP:
            sums = step.sums["gradient"]
            off = np.random.default_rng(seed).choice([-1, 1], sums.projections.shape) * (share * chosen)[:, None]
            bits = np.where(np.isnan(sums.square), sums.bits, sums.bits + np.uint64(1 + seed))
            gradient = Sums(sums.projections + off * sums.norm[:, None], sums.square, bits)
            step = dataclasses.replace(step, sums={**step.sums, "gradient": gradient})
        steps.append(step)
    return dataclasses.replace(run, steps=steps)


def judged(
    run: RecordedRun, rounding: float, times: float, only: str = "", is_float64: bool = False
) -> RecordedVerdict:
    if is_float64:
        run = dataclasses.replace(run, header=dataclasses.replace(run.header, is_float64=True))
    other, pairing = moved(run, times * rounding, 9), pair(run, run)
    return judge(run, other, measure(run, [moved(run, rounding, seed, only) for seed in range(4)], pairing))


def test_a_step_that_rounding_moves_by_all_of_its_gradients_is_not_decided(run: RecordedRun) -> None:
    verdict = judged(run, 2.0, 15.0)
    assert (verdict.kind, verdict.need, verdict.causes) == ("unknown", "float64", ())
    assert (verdict.first.step, verdict.first.phase) == (STEP, "gradient") and 14 < verdict.worst < 16
    assert verdict.notes[0].startswith(
        "rounding alone moves half of the gradients of step 2 by 200% of their norm or more."
    )
    assert not verdict.may_be_tipped
    assert judged(run, 2.0, 15.0, is_float64=True).need == ""


@pytest.mark.parametrize(
    ("rounding", "times", "only"),
    [
        (0.9 * CHAOTIC, 15.0, ""),
        (2.0, 1.1 * CERTAIN, ""),
        (2.0, 15.0, "net.head.bias"),  # one gradient is nothing but rounding
    ],
)
def test_what_differs_elsewhere_or_by_far_more_is_not_the_same(
    run: RecordedRun, rounding: float, times: float, only: str
) -> None:
    verdict = judged(run, rounding, times, only)
    assert (verdict.kind, verdict.first.step, verdict.first.phase) == ("unnamed", STEP, "gradient")


def test_the_loss_of_such_a_step_is_not_decided_either(run: RecordedRun) -> None:
    pairing = pair(run, run)
    still, chaotic = (measure(run, [moved(run, share, 0)], pairing) for share in (0.1, 2.0))
    assert [each.of_loss(STEP, 1.0).different for each in (still, chaotic)] == [THRESHOLD, CERTAIN]
    assert [each.of_loss(STEP - 1, 1.0).different for each in (still, chaotic)] == [THRESHOLD] * 2
    assert coarser(still, chaotic).chaotic == coarser(chaotic, still).chaotic == {STEP: pytest.approx(2.0)}


def test_growth_that_multiplies_leaves_proportion_at_that_share() -> None:
    """Bisected: where the worst healthy deviation of a normal x makes of exp(x) - 1 just ten times its root mean square."""

    def apart(deviation: float) -> float:
        return math.sqrt(math.exp(2 * deviation**2) - 2 * math.exp(deviation**2 / 2) + 1)

    low, high = 0.1, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        is_less = math.expm1(HEALTHY * middle) < THRESHOLD * apart(middle)
        low, high = (middle, high) if is_less else (low, middle)
    drawn = np.expm1(high * np.random.default_rng(0).normal(size=10**6))
    assert np.sqrt(np.mean(drawn**2)) == pytest.approx(apart(high), rel=0.01)
    assert round(apart(high), 1) == CHAOTIC

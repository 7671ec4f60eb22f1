"""Where rounding moves a step by as much as its gradients are, four reruns do not say how far it may move it."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from samestep.common.judging.recorded.differences import THRESHOLD, of_projecting
from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import Pairing, pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.judging.recorded.yardstick import CERTAIN, CHAOTIC, coarser, measure
from samestep.common.steps.projections import Piece
from samestep.common.steps.record import FOLLOWER, RecordedTensor
from samestep.common.steps.recorded_run import RecordedRun, Sums
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.diffing import diff
from tests.recording.judged import Fake, recorded, side
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
        "rounding alone moves half of the gradients of step 2 by 200 % of their norm or more."
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


def ended(run: RecordedRun, **changes: object) -> RecordedRun:
    """The run, of whose last step something else is known."""
    return dataclasses.replace(run, steps=[*run.steps[:-1], dataclasses.replace(run.steps[-1], **changes)])


def otherwise(run: RecordedRun, how: str) -> dict[str, object]:
    """What is known of the last step where it is another one for certain."""
    step = run.steps[-1]
    rate, gradient = next(name for name in step.scalars if name.endswith("lr")), step.sums["gradient"]
    twice = Sums(2 * gradient.projections, 4 * gradient.square, gradient.bits + np.uint64(1))
    return {
        "rate": {"scalars": step.scalars | {rate: 2 * step.scalars[rate]}},
        "skipped": {"is_skipped": True},
        "twice": {"sums": {**step.sums, "gradient": twice}},
    }[how]


@pytest.mark.parametrize(
    ("measured", "how", "need"),
    [
        ("nothing", "rate", ""),
        ("nothing", "twice", "command"),
        ("float64", "twice", ""),
        ("the first steps", "skipped", "steps"),
        ("chaos", "skipped", ""),
        ("chaos", "rate", ""),
    ],
)
def test_a_command_is_asked_for_only_where_reruns_of_it_could_say_more(
    run: RecordedRun, measured: str, how: str, need: str
) -> None:
    """Gradients may differ by rounding, and the step after them differs for certain."""
    if measured == "float64":
        run = dataclasses.replace(run, header=dataclasses.replace(run.header, is_float64=True))
    off = {"chaos": 30.0, "float64": 1e-6}.get(measured, 1e-3)
    other = ended(moved(run, off, 9), **otherwise(run, how))
    reruns = {"chaos": (2.0, len(run.steps)), "the first steps": (1e-7, STEP)}.get(measured)
    yardstick = None
    if reruns is not None:
        again = [moved(run, reruns[0], seed) for seed in range(4)]
        again = [dataclasses.replace(each, steps=each.steps[: reruns[1]]) for each in again]
        yardstick = measure(run, again, pair(run, run))
    verdict = judge(run, other, yardstick)
    assert (verdict.exit_code, verdict.first.step) == (4, run.steps[-1].number)
    assert verdict.is_exact == (how == "rate")
    assert verdict.need == need


@pytest.mark.parametrize(
    ("wrong", "mistake", "in_float64", "exit_code"),
    [
        (
            "B",
            "one_gradient_rounded_more",
            "",
            0,
        ),  # all that is apart is what B is off by, which no format of fewer digits does
        ("B", "one_gradient_rounded_more", None, 4),
        (
            "A",
            "gradients_off_at_random",
            "",
            0,
        ),  # all that is apart is what A itself is off by: 1 - p of a saturated softmax
        ("A", "gradients_off_at_random", None, 4),  # in float64 the two differ as well
        ("B", "gradients_off_at_random", "", 4),  # B alone computes in fewer digits
        (
            "B",
            "gradients_off_at_random",
            "other_order",
            4,
        ),  # float64 draws other numbers: A's distance to it is no rounding
    ],
)
def test_what_no_perturbation_shows_is_measured_in_float64(
    tmp_path: Path, wrong: str, mistake: str, in_float64: str | None, exit_code: int
) -> None:
    """Keras' momentum contrast at a temperature of 0.03, in a graph and with XLA, was off by 0.6 % in float32 alone."""

    class Cancelling(Fake):
        def __call__(self, command: list[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
            if options.weights_to is not None:
                Path(options.weights_to).write_bytes(b"")
                return
            self.changes = {"mistake": in_float64} if options.float64 and in_float64 is not None else {}
            super().__call__(command, options, directory, is_quiet)

    scripts = [Script(optimizer="sgd", mistake=mistake * (wrong == name)) for name in "AB"]
    a, b = (side(script, tmp_path, name, Cancelling()) for script, name in zip(scripts, "AB", strict=True))
    found = diff(a, b, 20).verdict
    assert found.exit_code == exit_code
    assert any("1 - p of a saturated softmax" in note for note in found.notes) == (exit_code == 0)


def test_the_order_of_a_projection_is_rounding_of_what_no_rerun_perturbs() -> None:
    """XLA adds up otherwise: a momentum encoder that had not moved was off by 18 units, and 1 unit was the yardstick."""
    numbers = np.random.default_rng(0).normal(size=(64, 4096)).astype("float32")
    apart = np.abs(np.cumsum(numbers, 1)[:, -1] - np.cumsum(numbers[:, ::-1], 1)[:, -1])
    norm = np.linalg.norm(numbers, axis=1)
    tensors = [RecordedTensor("one", "float32", Piece.whole((64, 64)), role) for role in (FOLLOWER, "parameter")]
    pairing = Pairing(tuple(tensors), (np.arange(2), np.arange(2)))
    rounding = of_projecting(np.ones(2), pairing, "weight")
    assert 1 / 3 < np.sqrt(np.mean((apart / norm) ** 2)) / rounding[0] < 3
    assert rounding[1] == 0 and not of_projecting(np.ones(2), pairing, "gradient").any()

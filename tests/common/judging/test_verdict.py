"""A verdict is a function of two curves; it asks for steps to be taken again only if these leave a question open."""

import dataclasses

import numpy as np
import pytest

from samestep.common.judging.reference_run import Curve, reference_of
from samestep.common.judging.verdict import Trial, judge_trial, why_not_judged
from samestep.common.program import SKIPPED, TrainState
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.precision.bound import MASTERS_IN_TWO_BYTES
from samestep.common.workload.initial import init
from tests.common.judging.curves import curve_of

ASKED = RunConfig(
    "torch", "ddp", "synthetic-mlp+width=8", devices=2, optimizer="sgd", dtype="float64", batch_size=16, steps=3
)
LOSSES, BATCHES = (1.5, 1.25, 1.0), (7, 8, 9)


class Never:
    """Nobody takes steps again."""

    def steps(self, run: Run, start: TrainState | None = None) -> Curve:
        raise AssertionError("the curves say enough")


def state_of(run: Run, moved: float = 0.0, **changes: object) -> TrainState:
    params = {name: value + moved for name, value in init(run.workload.model, run.seed).items()}
    return dataclasses.replace(TrainState(3, params, {}), **changes)


def trial(seen: Curve, run: Run | None = None, wanted: Curve | None = None, **changes: object) -> Trial:
    run = run or parse(ASKED)
    wanted = wanted or curve_of(LOSSES, state_of(run), BATCHES)
    made = Trial(
        run=run,
        reference=reference_of(run),
        seen=seen,
        wanted=wanted,
        start=lambda: state_of(run),
        in_own_names=None,
        alone=Never(),
        rerun=Never(),
        ask=None,
    )
    return dataclasses.replace(made, **changes)


def test_equal_curves_pass_and_nothing_is_taken_again() -> None:
    parity = judge_trial(trial(curve_of(LOSSES, state_of(parse(ASKED)), BATCHES)))
    assert (parity.passed, parity.reason, parity.steps, parity.max_absolute_weight) == (True, "", 3, 0.0)


@pytest.mark.parametrize(
    ("losses", "moved", "said"),
    [
        ((1.5, 1.25 + 1e-9, 1.0), 0.0, "the loss of step 1 is"),
        (LOSSES, 1e-8, "after the last step"),
    ],
)
def test_a_curve_that_is_off_does_not_pass_where_nobody_can_take_its_steps_again(
    losses: tuple[float, ...], moved: float, said: str
) -> None:
    parity = judge_trial(trial(curve_of(losses, state_of(parse(ASKED), moved)), rerun=None))
    assert parity.passed is False
    assert parity.reason.startswith(said)


def test_the_first_step_that_trained_on_other_examples_is_named_though_no_loss_shows_it() -> None:
    seen = curve_of(LOSSES, state_of(parse(ASKED)), (7, 1, 2))
    parity = judge_trial(trial(seen, rerun=None))
    assert (parity.passed, parity.reason) == (False, "step 1 trained on different examples from the reference's")


def test_a_log_without_digests_is_judged_by_its_losses() -> None:
    assert judge_trial(trial(curve_of(LOSSES, state_of(parse(ASKED))))).passed


def test_a_reference_that_ends_earlier_judges_the_first_steps() -> None:
    seen = curve_of((*LOSSES[:2], 5.0), state_of(parse(ASKED), 1.0))
    short = curve_of(LOSSES[:2], dataclasses.replace(state_of(parse(ASKED)), step=2))
    parity = judge_trial(trial(seen, wanted=short))
    assert (parity.passed, parity.steps, parity.max_absolute_weight) == (True, 2, None)


def in_two_bytes() -> Run:
    return parse(dataclasses.replace(ASKED, dtype="float32", techniques=Techniques(precision="fp16")))


def test_a_run_is_judged_to_the_step_that_its_loss_scaler_skipped() -> None:
    run = in_two_bytes()
    seen = curve_of((*LOSSES[:2], 5.0), state_of(run, 1 / 3, local=({SKIPPED: np.array([1])},)))
    parity = judge_trial(trial(seen, run))
    assert (parity.passed, parity.steps) == (True, 2)
    assert parity.reason == "judged to step 1, whose update the loss scaler skipped"


def test_masters_that_fit_into_two_bytes_are_another_step() -> None:
    run = in_two_bytes()
    params = {name: np.round(value * 64) / 64 for name, value in init(run.workload.model, run.seed).items()}
    parity = judge_trial(trial(curve_of(LOSSES, TrainState(3, params, {})), run))
    assert (parity.passed, parity.reason) == (False, MASTERS_IN_TWO_BYTES)


@pytest.mark.parametrize(
    ("changes", "is_wanted", "said"),
    [
        ({}, True, ""),
        ({}, False, "--no-parity"),
        ({"framework": "numpy", "strategy": "oracle", "devices": 1}, True, "the oracle is the reference"),
    ],
)
def test_what_is_not_judged_says_why(changes: dict[str, object], is_wanted: bool, said: str) -> None:
    run = parse(dataclasses.replace(ASKED, **changes))
    assert why_not_judged(run, reference_of(run), is_wanted) == said

"""Tokens between two experts: a step that takes the other one is right as well, and a mistake beside them is still found."""

import dataclasses
import itertools

import numpy as np
import pytest

from samestep.common.batch import Batch, batches
from samestep.common.program import TrainState
from samestep.common.reference.diagnosis import find_bad_step, measure_amplification
from samestep.common.reference.distance import StepOutcome, distance, take
from samestep.common.reference.features.ties import nearest_way, ties_of
from samestep.common.reference.models.experts import Experts
from samestep.common.reference.models.layers import layers_below
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import load

MIXTURE = "prose-gpt+layers=1+heads=2+width=8+context=8+experts=4+balance=0"


@dataclasses.dataclass(frozen=True, eq=False)
class Tied:
    """A run, its first batch, and a state in which some of the first tokens lie between two experts."""

    run: Run
    batch: Batch
    before: TrainState


def tied(count: int = 2, all_are: bool = False) -> Tied:
    """The second expert's scores are those of the first for so many tokens, or all: to rounding, not exactly."""
    run = parse(RunConfig(workload=MIXTURE + "+top_k=1", dtype="float64", batch_size=4, steps=3, optimizer="sgd"))
    split = load(run.workload.data)
    batch = next(batches(split.train_inputs, split.train_targets, run.batch_size, run.seed))
    program = TrainingProgram(run)
    (mixture,) = (each for each in layers_below(program.model) if isinstance(each, Experts))
    seen, right = [], mixture.forward

    def forward(params: dict, x: np.ndarray) -> tuple:
        seen.append(x.reshape(-1, x.shape[-1]))
        return right(params, x)

    vars(mixture)["forward"] = forward
    before = program.state()
    program.step(batch)
    of_tokens = seen[0][:count]
    router = before.params["blocks/0/mlp/router/kernel"]
    router[:, 0] = np.linalg.lstsq(of_tokens, np.full(count, 5.0), rcond=None)[0]
    # What a norm returns is at a right angle to (1, 1, ...); the other direction is at one to these tokens alone.
    ones = np.ones((1, of_tokens.shape[1]))
    router[:, 1] = router[:, 0] + (ones[0] if all_are else np.linalg.svd(np.concatenate((of_tokens, ones)))[2][-1])
    return Tied(run, batch, before)


def turned(case: Tied, tokens: range) -> StepOutcome:
    """The step in which some of the tokens take their other expert."""
    program = TrainingProgram(case.run, case.before)
    program.context.ties = ties_of(case.run, tuple((1, token) for token in tokens))
    return take(program, case.batch)


@pytest.mark.parametrize("count", [1, 2])
def test_a_step_that_takes_the_other_expert_is_right_as_well(count: int) -> None:
    case = tied()
    other = turned(case, range(count))
    assert distance(case.run, case.before, other, take(TrainingProgram(case.run, case.before), case.batch)) > 1
    assert nearest_way(case.run, case.before, case.batch, other) <= 1
    assert find_bad_step(case.run, [0], case.before, lambda step: ([other.loss], other.after)) is None


def test_a_mistake_beside_a_tie_is_found() -> None:
    case = tied()
    program = TrainingProgram(case.run, case.before)
    right = program.gradients
    program.gradients = lambda batch: (right(batch)[0], {name: 2 * g for name, g in right(batch)[1].items()})
    wrong = take(program, case.batch)
    assert find_bad_step(case.run, [0], case.before, lambda step: ([wrong.loss], wrong.after)) == 0


def test_of_more_ties_than_can_be_tried_none_is_turned() -> None:
    case = tied(all_are=True)
    assert not nearest_way(case.run, case.before, case.batch, turned(case, range(1))) <= 1


def test_ties_are_counted_where_amplification_is_measured() -> None:
    case = tied()
    growth, ties = measure_amplification(case.run, 1, case.before)
    assert ties == 2
    assert growth > 0


def test_no_token_of_the_usual_runs_lies_between_two_experts() -> None:
    run = parse(RunConfig(workload=MIXTURE, dtype="float64", batch_size=16, steps=20))
    program, split = TrainingProgram(run), load(run.workload.data)
    program.context.ties = ties_of(run)
    for batch in itertools.islice(
        batches(split.train_inputs, split.train_targets, run.batch_size, run.seed), run.steps
    ):
        program.step(batch)
    assert not program.context.ties.found

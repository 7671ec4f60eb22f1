"""Negative controls: every wrong step is caught, and named."""

import itertools

import pytest

from common.batch import Batch, batches
from common.config import RunConfig
from common.evidence.parity import judge
from common.reference.diagnosis import diagnose
from common.reference.mutants import MUTANTS, Context, Mutant
from common.reference.program import TrainingProgram
from common.strategy import TrainState
from common.workload.table import Workload, resolve
from tests.cells import SIZED

STEPS = 8
DEVICES = 4
"""With two, the last shard missing and the first shard alone are the same step."""


def configured(model: str, optimizer: str) -> tuple[RunConfig, Workload]:
    config = RunConfig(
        workload=SIZED[model], optimizer=optimizer, dtype="float64", mesh=f"data={DEVICES}", batch_size=48, steps=STEPS
    )
    return config, resolve(config)


def stream(workload: Workload, config: RunConfig, count: int) -> list[Batch]:
    split = workload.data.load()
    taken = batches(split.train_inputs, split.train_targets, config.batch_size or 0, config.seed)
    return list(itertools.islice(taken, count))


def trained(
    workload: Workload, config: RunConfig, mutant: Mutant | None, steps: int
) -> tuple[list[float], TrainState] | None:
    """A run of the oracle, mutated or not; None where the mutant does not apply."""
    program = TrainingProgram(workload, config)
    ahead = stream(workload, config, steps + 1)
    if mutant is not None and mutant.name == "swapped_batch":
        program.gradients = lambda batch, right=program.gradients: right(ahead[batch.step + 1])
    elif mutant is not None and not mutant.apply(program, Context(devices=DEVICES)):
        return None
    for batch in ahead[:-1]:
        program.step(batch)
    return program.losses(), program.state()


def caught(mutant: Mutant, model: str, optimizer: str) -> str | None:
    """The diagnosis of a mutated run; None where the mutant does not apply; fails if it passes for the right step."""
    config, workload = configured(model, optimizer)
    wrong = trained(workload, config, mutant, STEPS)
    if wrong is None:
        return None
    right = trained(workload, config, None, STEPS)
    assert right is not None
    verdict = judge("oracle", "float64", 0, wrong[0], right[0], wrong[1].params, right[1].params)
    assert not verdict.passed, f"{mutant.name} went unnoticed"
    bad = STEPS - 1 if verdict.first_bad_step is None else verdict.first_bad_step
    start = TrainingProgram(workload, config).state()

    def replay(steps: int) -> tuple[list[float], TrainState]:
        result = trained(workload, config, mutant, steps)
        assert result is not None
        return result

    return diagnose(workload, config, 0, bad, start, replay)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutated_oracle_is_caught_and_diagnosed(mutant: Mutant, optimizer: str) -> None:
    told = (caught(mutant, model, optimizer) for model in ("mlp", "transformer"))
    sentence = next((each for each in told if each is not None), None)
    if sentence is None:
        assert mutant.name in ONE_OPTIMIZER
    else:
        assert mutant.sentence.format(devices=DEVICES) in sentence


ONE_OPTIMIZER = {
    "momentum_off_by_one",
    "nesterov",
    "epsilon_inside",
    "epsilon_hat",
    "no_bias_correction",
    "coupled_decay",
    "decay_without_rate",
}
"""These change the update of one of the two."""

"""Negative controls: every wrong step is caught, and named."""

import itertools
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from samestep.common.batch import Batch, batches
from samestep.common.judging.parity import judge
from samestep.common.program import TrainState
from samestep.common.reference.diagnosis import diagnose
from samestep.common.reference.mutants import MUTANTS, Context, Mutant
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from tests.cells import SIZED, optimizers_of

STEPS = 8
DEVICES = 4
"""With two, the last shard missing and the first shard alone are the same step."""


TECHNIQUES = {"late_rate": Techniques(warmup_steps=4)}
"""What a mutant gets wrong, if a plain step does not have it."""


def described(model: str, optimizer: str, techniques: Techniques) -> Run:
    """A run of float64 on four devices; only the oracle trains it here."""
    return parse(
        RunConfig(
            strategy="ddp",
            workload=SIZED[model],
            optimizer=optimizer,
            dtype="float64",
            mesh=f"data={DEVICES}",
            batch_size=48,
            steps=STEPS,
            techniques=techniques,
        )
    )


def stream(run: Run, count: int) -> list[Batch]:
    split = run.workload.data.load()
    return list(itertools.islice(batches(split.train_inputs, split.train_targets, run.batch_size, run.seed), count))


def trained(run: Run, mutant: Mutant | None, steps: int) -> tuple[list[float], TrainState] | None:
    """A run of the oracle, mutated or not; None where the mutant does not apply."""
    program = TrainingProgram(run)
    ahead = stream(run, steps + 1)
    if mutant is not None and mutant.name == "swapped_batch":
        program.gradients = lambda batch, right=program.gradients: right(ahead[batch.step + 1])
    elif mutant is not None and not mutant.apply(program, Context(devices=DEVICES)):
        return None
    for batch in ahead[:-1]:
        program.step(batch)
    return program.losses(), program.state()


def caught(mutant: Mutant, model: str, optimizer: str) -> str | None:
    """The diagnosis of a mutated run; None where the mutant does not apply; fails if it passes for the right step."""
    run = described(model, optimizer, TECHNIQUES.get(mutant.name, Techniques()))
    wrong = trained(run, mutant, STEPS)
    if wrong is None:
        return None
    right = trained(run, None, STEPS)
    assert right is not None
    verdict = judge("oracle", "float64", 0, wrong[0], right[0], wrong[1].params, right[1].params)
    assert not verdict.passed, f"{mutant.name} went unnoticed"
    bad = STEPS - 1 if verdict.first_bad_step is None else verdict.first_bad_step

    def replay(steps: int) -> tuple[list[float], TrainState]:
        result = trained(run, mutant, steps)
        assert result is not None
        return result

    return diagnose(run, 0, bad, TrainingProgram(run).state(), replay)


def cases() -> Iterator[ParameterSet]:
    """Each mutant with one optimizer, in turn; `test_diagnosis.py` has both, and `make test-slow` here as well."""
    for number, mutant in enumerate(MUTANTS):
        optimizers = optimizers_of(mutant.name)
        for place, optimizer in enumerate(optimizers):
            is_slow = place != number % len(optimizers)
            yield pytest.param(
                mutant, optimizer, id=f"{mutant.name}-{optimizer}", marks=[pytest.mark.slow] if is_slow else []
            )


@pytest.mark.parametrize(("mutant", "optimizer"), [*cases()])
def test_a_mutated_oracle_is_caught_and_diagnosed(mutant: Mutant, optimizer: str) -> None:
    told = (caught(mutant, model, optimizer) for model in ("mlp", "transformer"))
    sentence = next(each for each in told if each is not None)
    assert mutant.sentence.format(devices=DEVICES) in sentence

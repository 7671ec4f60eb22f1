"""The default rates are well conditioned: rounding noise in the first weights stays noise for a hundred steps.

Otherwise a parity bound of 1e-12 would be luck.
"""

import itertools

import numpy as np
import pytest

from samestep.common.batch import batches
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.workload.data.casting import in_dtype
from samestep.common.workload.table import WORKLOADS, workload_named
from tests.cells import SIZED

STEPS = 100
RELATIVE_PERTURBATION = 1e-8
LARGEST_MOVE = 5e-7
REAL = [name for name in WORKLOADS if workload_named(name).data.name != "synthetic"]


def curve(
    workload: str, optimizer: str, batch_size: int | None, perturbation: float, rate: float | None = None
) -> np.ndarray:
    """The oracle's losses, from initial weights that are each moved by so much, up or down."""
    run = parse(
        RunConfig(
            framework="numpy",
            strategy="oracle",
            workload=workload,
            optimizer=optimizer,
            learning_rate=rate,
            batch_size=batch_size,
            dtype="float64",
            seed=0,
        )
    )
    program = TrainingProgram(run)
    signs = np.random.default_rng(1)
    for value in program.params.values():
        value *= 1 + perturbation * signs.choice([-1.0, 1.0], value.shape)
    split = in_dtype(run.workload.data.load(), run.dtype)
    stream = batches(split.train_inputs, split.train_targets, run.batch_size, run.seed)
    for batch in itertools.islice(stream, STEPS):
        program.step(batch)
    return np.array(program.losses())


def largest_move(workload: str, optimizer: str, batch_size: int | None = None) -> float:
    plain, moved = (curve(workload, optimizer, batch_size, by) for by in (0.0, RELATIVE_PERTURBATION))
    assert len(plain) == STEPS
    assert np.isfinite(plain).all()
    assert plain[-10:].mean() < plain[:10].mean()  # it trains: a rate of nothing would be well conditioned, too
    return float(np.abs(moved - plain).max())


@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("sgd", marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", SIZED)
def test_sized_workloads_are_well_conditioned(model: str, optimizer: str) -> None:
    assert 0 < largest_move(SIZED[model], optimizer, batch_size=24) <= LARGEST_MOVE


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("workload", REAL)
def test_workloads_are_well_conditioned(workload: str, optimizer: str) -> None:
    assert 0 < largest_move(workload, optimizer) <= LARGEST_MOVE


def test_every_workload_with_real_data_is_asked() -> None:
    assert {"digits-mlp", "mnist-cnn", "prose-gpt", "flights-ranker"} <= set(REAL)


def test_a_rate_that_is_too_large_is_not_well_conditioned() -> None:
    plain, moved = (curve(SIZED["mlp"], "adamw", 24, by, rate=2.0) for by in (0.0, RELATIVE_PERTURBATION))
    assert np.abs(moved - plain).max() > LARGEST_MOVE

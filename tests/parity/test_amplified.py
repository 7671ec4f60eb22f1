"""A run that leaves the oracle's curve by rounding alone is the same step; a wrong one is none, however hot its rate."""

import dataclasses
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.judging.parity import Parity
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments.comparing.quantities import same_step
from samestep.experiments.comparing.row import SAME, Row
from tests.conftest import RunCell
from tests.lent import LentLauncher

HOT = {"workload": "digits-mlp+width=32+activation=relu", "optimizer": "sgd", "learning_rate": 0.5, "batch_size": 48}
"""A kink and a rate at which rounding grows a million times within 30 steps."""

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def mutant_launcher(launcher: Launcher) -> Launcher:
    return LentLauncher(launcher, "tests.parity.mutant_worker")


@pytest.mark.parametrize(
    ("dtype", "steps", "how"), [("float32", 40, "in float64 it takes"), ("float64", 80, "every step that is replayed")]
)
def test_rounding_that_is_amplified_is_the_same_step(run_cell: RunCell, dtype: str, steps: int, how: str) -> None:
    result = run_cell("torch:ddp+devices=2", dtype=dtype, steps=steps, **HOT)
    assert result.parity.passed
    assert result.parity.is_amplified
    assert result.parity.first_bad_step is not None
    assert result.parity.amplification > 1e5
    assert result.parity.reason.startswith(f"rounding is amplified: {how}")
    assert same_step(result) == "yes, amplified"
    assert Row.of(Cell.parse("torch:ddp"), result).status == SAME


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_mistake_is_not_excused_by_a_hot_rate(mutant_launcher: Launcher, tmp_path: Path, dtype: str) -> None:
    asked = RunConfig(strategy="ddp", devices=2, dtype=dtype, steps=30, parity=True, out=str(tmp_path / "run"))
    asked = dataclasses.replace(asked, **HOT)
    result = mutant_launcher.run(parse(asked), launch_of(asked), environment={"MUTANT": "torch_forgotten_exchange"})
    assert result.parity.passed is False
    assert "the exchange between 2 devices was forgotten" in result.parity.reason


def test_a_verdict_of_older_results_is_not_amplified() -> None:
    assert not Parity("numpy:oracle", 1, 0.0, 0.0, True).is_amplified

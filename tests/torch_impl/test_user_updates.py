"""A user's optimizer that follows the sign of rounding takes the same step; one that is wrong takes none."""

import itertools
import re
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments.comparing.quantities import same_step
from tests.conftest import RunCell
from tests.lent import LentLauncher
from tests.own.asked import ZOO

pytestmark = pytest.mark.torch
KEYS = r"blocks/\d/attention/in_proj_bias"


def own(model: str) -> dict[str, str]:
    return {"model": f"{ZOO.with_name('optimizer_zoo.py')}:{model}", "data": f"{ZOO}:tokens"}


@pytest.mark.parametrize(
    ("model", "steps"),
    [
        *(("LION", 1), ("ADAM", 6)),
        *(
            pytest.param(model, steps, marks=pytest.mark.slow)
            for model, steps in (
                ("LION", 6),
                ("SIGNS", 1),
                ("SIGNS", 6),
                ("RPROP", 6),
                ("RPROP", 12),
                ("ADAM", 1),
                ("RMSPROP", 6),
                ("AMSGRAD", 6),
                ("LION", 20),
            )
        ),
    ],
)
def test_where_a_true_gradient_is_zero_rounding_decides(run_cell: RunCell, model: str, steps: int) -> None:
    result = run_cell("torch:ddp", "digits-mlp", devices=2, dtype="float64", steps=steps, **own(model))
    assert result.parity.passed, result.parity.reason
    assert same_step(result) == "yes"
    said = rf"after the last step {KEYS} is off by \S+, by rounding alone: its true gradient is zero there, .*"
    assert re.fullmatch(said, result.parity.reason), result.parity.reason


def test_where_rounding_decides_nothing_nothing_is_said(run_cell: RunCell) -> None:
    result = run_cell("torch:ddp", "digits-mlp", devices=2, dtype="float64", steps=6, **own("MOMENTUM"))
    assert result.parity.passed and not result.parity.reason


@pytest.mark.parametrize(
    ("model", "mistake"),
    [
        ("LION", "factor"),
        ("LION", "update"),
        pytest.param("SIGNS", "update", marks=pytest.mark.slow),
        *(pytest.param(*both, marks=pytest.mark.slow) for both in itertools.product(["SIGNS", "MOMENTUM"], ["factor"])),
        pytest.param("MOMENTUM", "update", marks=pytest.mark.slow),
    ],
)
def test_a_mistake_is_not_excused(launcher: Launcher, tmp_path: Path, model: str, mistake: str) -> None:
    """Gradients 1.001 times too large, which a sign does not see but the state; and a last update that is another one."""
    fields = {"devices": 2, "dtype": "float64", "steps": 6, "batch_size": 48, "out": str(tmp_path / "run")}
    with LentLauncher(launcher, "tests.own.mistaken_worker") as lent:
        config = lent.describe(Cell.parse("torch:c10d").apply_to(RunConfig(**fields, **own(model))))
        result = lent.run(parse(config), launch_of(config), environment={"MISTAKE": mistake})
    assert result.parity.passed is False
    assert "strategy is right" not in result.parity.reason

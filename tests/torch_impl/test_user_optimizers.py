"""Optimizers of the user's: their groups, their schedules, and what they make of parts of parameters."""

from pathlib import Path

import numpy as np
import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.state_file import read_state
from tests.conftest import RunCell
from tests.own.asked import ZOO

pytestmark = pytest.mark.torch


def own(model: str) -> dict[str, str]:
    return {"model": f"{ZOO.with_name('optimizer_zoo.py')}:{model}", "data": f"{ZOO}:tokens"}


@pytest.mark.parametrize(
    ("model", "refused", "taken", "given"),
    [
        ("MUON", "torch:fsdp", "torch:zero1", "two shards of each parameter, as torch:fsdp does"),
        ("MUON", "torch:deepspeed", "torch:ddp", "only a half of each parameter, as torch:deepspeed does"),
        ("CLIPPED", "torch:zero1", "torch:fsdp", "only some of the parameters, as torch:zero1 does"),
    ],
)
def test_what_it_makes_of_parts_is_found_out_before_it_trains(
    launcher: Launcher, model: str, refused: str, taken: str, given: str
) -> None:
    described = launcher.describe(Cell.parse(taken).apply_to(RunConfig(devices=2, batch_size=48, **own(model))))
    parse(described)
    with pytest.raises(
        ConfigError, match=f"takes a different step when it is given {given}: in an experiment .* moved differently"
    ):
        parse(Cell.parse(refused).apply_to(described))


def test_lbfgs_is_refused_in_a_line(launcher: Launcher) -> None:
    with pytest.raises(ConfigError, match="has LBFGS, whose step computes the loss several times, which no row does"):
        parse(launcher.describe(Cell.parse("torch:ddp").apply_to(RunConfig(devices=2, batch_size=48, **own("LBFGS")))))


def test_groups_keep_the_ratio_of_their_rates(run_cell: RunCell) -> None:
    fields = {"devices": 2, "dtype": "float64", "steps": 4, **own("RATES")}
    result = run_cell("torch:zero1", "digits-mlp", **fields)
    assert result.parity.passed, result.parity.reason
    assert result.config.learning_rate == 2**-10
    doubled = run_cell("torch:zero1", "digits-mlp", learning_rate=2**-9, **fields)
    assert doubled.parity.passed and doubled.losses[1] != result.losses[1]


def test_a_schedule_of_its_own_is_followed(run_cell: RunCell, tmp_path: Path) -> None:
    """After two steps its rate is 0; weights no longer move."""
    ended = []
    for steps in (1, 2, 4):
        fields = {"steps": steps, "keep_state": True, "parity": False, "out": str(tmp_path / str(steps))}
        run_cell("torch:single", "digits-mlp", **fields, **own("SCHEDULED"))
        ended.append(read_state(tmp_path / str(steps)).params["norm/scale"])
    assert np.array_equal(ended[1], ended[2]) and not np.array_equal(ended[0], ended[1])

"""What other processes call goes on from its state as everybody does, however late the state comes to it."""

from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from tests.lent import LentLauncher

pytestmark = pytest.mark.torch


def trained(launcher: Launcher | LentLauncher, cell: str, out: Path, **fields: object) -> RunResult:
    sized = {
        "workload": "digits-mlp+width=32",
        "batch_size": 48,
        "devices": 2,
        "optimizer": "adamw",
        "dtype": "float64",
    }
    config = RunConfig(**{**sized, "parity": False, "keep_state": True, "out": str(out), **fields})
    asked = Cell.parse(cell).apply_to(config)
    return launcher.run(parse(asked), launch_of(asked))


@pytest.mark.parametrize(
    "cell", ["torch:rpc", "torch:rpc_parameter_server", "torch:rpc_parameter_server+consistency=async"]
)
def test_nobody_takes_a_step_before_the_state_is_there(launcher: Launcher, tmp_path: Path, cell: str) -> None:
    late, devices = LentLauncher(launcher, "tests.torch_impl.slow_restore_worker"), 1 if "async" in cell else 2
    whole = trained(launcher, cell, tmp_path / "whole", steps=5, devices=devices)
    trained(launcher, cell, tmp_path / "first", steps=3, devices=devices)
    rest = trained(late, cell, tmp_path / "rest", steps=5, devices=devices, start_from=str(tmp_path / "first"))
    assert rest.losses == whole.losses[3:]

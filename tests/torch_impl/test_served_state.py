"""A process that others call restores and counts as everybody does, however late it is."""

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
    late, devices = LentLauncher(launcher, "tests.torch_impl.slow_serving_worker"), 1 if "async" in cell else 2
    whole = trained(launcher, cell, tmp_path / "whole", steps=5, devices=devices)
    trained(launcher, cell, tmp_path / "first", steps=3, devices=devices)
    rest = trained(late, cell, tmp_path / "rest", steps=5, devices=devices, start_from=str(tmp_path / "first"))
    assert rest.losses == whole.losses[3:]


@pytest.mark.parametrize("cell", ["torch:rpc", "torch:rpc_parameter_server"])
def test_what_a_late_process_sends_counts_in_the_step_it_belongs_to(
    launcher: Launcher, tmp_path: Path, cell: str
) -> None:
    late = trained(LentLauncher(launcher, "tests.torch_impl.slow_serving_worker"), cell, tmp_path / "late", steps=5)
    whole = trained(launcher, cell, tmp_path / "whole", steps=5).processes[-1]
    assert late.processes[-1].sent_bytes_per_step == pytest.approx(whole.sent_bytes_per_step, abs=1024)

"""A run that dies goes on from its newest checkpoint, and ends in the very bits of one that never died."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.checkpoints.committed import COMMIT, Checkpoint, Damaged, find_checkpoints
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.state_file import STATE
from samestep.common.steps.log import METRICS
from tests.cells import SIZED, every_row

Kill = Callable[[int, list[float], float], None]
ROWS = [
    pytest.param(
        f"{framework}:{row.name}",
        id=f"{framework}:{row.name}",
        marks=[
            getattr(pytest.mark, framework),
            *([] if row.name in ("ddp", "zero1", "mirrored", "rpc_parameter_server") else [pytest.mark.slow]),
        ],
    )
    for framework, row in every_row()
    if row.axes and row.synchronous(row.options())
]


def ask(cell: str, out: Path, **fields: object) -> tuple:
    defaults = {"workload": SIZED["mlp"], "batch_size": 48, "steps": 24, "devices": 4, "save_every": "5", "parity": True}
    config = Cell.parse(cell).apply_to(RunConfig(out=str(out), keep_state=True, **{**defaults, **fields}))
    return parse(config), launch_of(config)


def take(launcher: Launcher, cell: str, out: Path, kill: Kill | None = None, **fields: object) -> RunResult:
    run, launch = ask(cell, out, **fields)
    return launcher.run(run, launch, kill)


def killer(directory: Path, role: str, step: int) -> Kill:
    """Kills a process once, as soon as its run has taken some steps."""
    done: list[int] = []

    def kill(reached: int, losses: list[float], seconds: float) -> None:
        if reached >= step and not done:
            done.append(json.loads((directory / f"process-{role}.json").read_text())["pid"])
            os.kill(done[0], signal.SIGKILL)

    return kill


@pytest.mark.parametrize("cell", ROWS)
def test_a_run_that_was_killed_ends_in_the_same_bits(launcher: Launcher, tmp_path: Path, cell: str) -> None:
    """Long enough not to end before it is killed: the parent looks for progress five times a second."""
    fields = {"steps": 600, "save_every": "25", "optimizer": "adamw"}
    whole = take(launcher, cell, tmp_path / "whole", **fields | {"save_every": None})
    role = "rank-0" if cell.startswith("tf:mirrored") else "rank-1"
    died = take(launcher, cell, tmp_path / "died", killer(tmp_path / "died", role, 60), **fields | {"restarts": 1})
    assert died.attempt == 2 and died.resumed_at is not None and died.resumed_at >= 50
    assert died.losses == whole.losses and len(died.losses) == 600
    assert died.state_sha256 == whole.state_sha256
    assert died.parity.passed, died.parity.reason

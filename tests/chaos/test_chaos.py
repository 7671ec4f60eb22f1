"""A part of the table of faults (`tests/chaos/`), and that the page shows all of it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.common.runtime.parent.launcher import Launcher
from tests.chaos import cells as chaos_cells
from tests.chaos import run as chaos_run
from tests.chaos.cells import Cell, cells, rows
from tests.chaos.page import FAULTS, PAGE
from tests.chaos.run import take
from tests.lent import LentLauncher

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 5.0
IN_A_GROUP = """
import sys, tempfile
from pathlib import Path
from tests.chaos.cells import Cell
from tests.chaos.rooms import memory_group
from tests.chaos.run import take
from samestep.common.runtime.parent.launcher import Launcher

if memory_group() is None:
    sys.exit(77)
with Launcher(worker="tests.chaos.worker") as launcher, tempfile.TemporaryDirectory() as scratch:
    outcome = take(Cell("torch:single", "short_memory", "rank-0", "train"), launcher, Path(scratch))
print(outcome.is_right, outcome.orphans, outcome.said)
"""


@pytest.fixture(scope="module")
def struck(launcher: Launcher) -> Launcher:
    return LentLauncher(launcher, "tests.chaos.worker")


@pytest.mark.torch
@pytest.mark.parametrize(
    "cell",
    [
        Cell("torch:ddp", "SIGKILL", "rank-0", "build"),
        Cell("torch:ddp", "SIGKILL", "rank-1", "evaluate"),
        Cell("torch:ddp", "SIGKILL", "rank-1", "write"),
        Cell("torch:single", "SIGKILL", "rank-0", "write"),
        pytest.param(Cell("torch:ddp", "SIGSTOP", "rank-0", "evaluate"), marks=pytest.mark.slow),
        Cell("torch:single", "SIGSTOP", "rank-0", "first step"),
        Cell("torch:ddp", "cut_connection", "rank-1", "train"),
        Cell("torch:fsdp", "nan_gradient", "rank-0", "train"),
        Cell("torch:single", "rank_twice", "rank-0", ""),
        Cell("torch:single", "corrupted_state", "rank-0", ""),
    ],
    ids=lambda cell: cell.stored.stem,
)
def test_a_fault_is_told(struck: Launcher, cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos_cells, "TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    outcome = take(cell, struck, tmp_path)
    assert outcome.is_right, outcome.said
    assert outcome.orphans == 0
    assert outcome.seconds is None or outcome.seconds < 3 * TIMEOUT_SECONDS


@pytest.mark.torch
def test_a_fault_that_is_told_as_another_one_is_found(
    struck: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(chaos_run.SAYS, "nan_gradient", "the disk is full")
    outcome = take(Cell("torch:single", "nan_gradient", "rank-0", "train"), struck, tmp_path)
    assert not outcome.is_right
    assert not outcome.is_good


@pytest.mark.torch
def test_a_worker_that_a_real_limit_of_memory_kills_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_GROUP], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    if done.returncode == 77:
        pytest.skip("this machine allows no control group of our own")
    assert re.match(r"True 0 rank-0 was killed for lack of memory at \d+ MiB", done.stdout), done.stdout + done.stderr


def test_the_page_shows_every_row_and_fault() -> None:
    page = PAGE.read_text()
    taken = {cell.fault for row in rows() for cell in cells(row)}
    assert taken == set(FAULTS)
    assert [row for row in rows() if f"| `{row}` " not in page] == []
    assert [fault for fault in FAULTS if f"### `{fault}`" not in page] == []
    assert "NOT as wanted" not in page

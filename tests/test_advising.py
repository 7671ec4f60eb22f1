"""docs/advising.md: each block is run, in an empty folder, in the order of the page; those that time this machine are slow."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "advising.md").read_text()
BEFORE, TITLE, AFTER = PAGE.partition("## This machine")


def run_blocks(text: str, folder: Path) -> list[str]:
    """What the commands of a part of the page print."""
    told = []
    for kind, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if kind == "sh":
            told += [run(line, folder) for line in block.splitlines()]
        else:
            file = re.match(r"# (\w+\.\w+)\n", block)
            assert file, block
            (folder / file[1]).write_text(block)
    return told


def run(line: str, folder: Path) -> str:
    program, *arguments = shlex.split(line)
    assert program == "samestep"
    command = [sys.executable, "-m", "samestep", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


@pytest.mark.torch
@pytest.mark.timeout(300)
def test_each_block_that_times_nothing(tmp_path: Path) -> None:
    told = run_blocks(BEFORE, tmp_path)
    assert len(told) == 6
    swept = told.pop(2)
    assert "| 8192 " in swept and "| 131072 " in swept and "MFU" in swept
    assert all("The fastest is torch:" in each and "Under other conditions" in each for each in told)
    assert "tensor=2" in told[1] and "15 trillion tokens take" in told[2] and "which cost" in told[2]
    assert "100 Gbit/s" in told[3] and "are not predicted" in told[4]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(600)
def test_each_block_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calibrated, here, hosts, _, corrected = run_blocks(AFTER, tmp_path)
    assert "small all_reduce" in calibrated
    assert "The fastest is torch:" in here and "The fastest is torch:" in hosts
    assert "on 4 nodes of" in hosts and "each with a link of 1gbit" in hosts
    assert "Calibrated with 3 runs in measured" in corrected

"""The tutorial is what happens: its blocks run one after the other in one empty folder, and its commands end as it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(900)  # seven commands, on a machine that other tests share
@pytest.mark.torch
@pytest.mark.tf
def test_every_block_does_what_is_said(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said: dict[str, str] = {}
    for kind, block in BLOCKS:
        if kind == "python":
            name = re.match(r"# (\S+)\n", block)
            assert name is not None
            (tmp_path / name[1]).write_text(block)
            continue
        for line in block.splitlines():
            command, _, about = line.partition("  # exit code ")
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert done.returncode == int(about or 0), done.stderr
            said[command] = done.stdout
    assert said["samestep diff one four"].startswith("not the same: step 0")
    assert "number of micro-batches (4)" in " ".join(said["samestep diff one four"].split())
    assert said["samestep diff one fixed"].startswith("same")
    table = next(text for command, text in said.items() if command.startswith("samestep compare"))
    assert "2 of 2 strategies took the oracle's 20 steps" in table
    assert (tmp_path / "first.html").is_file()

"""docs/your-model.md: each block is run, in an empty folder, in the order of the page."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "your-model.md").read_text()
BLOCKS = re.findall(r"```(python|sh)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.torch
@pytest.mark.tf
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_each_block_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, block in BLOCKS:
        if kind == "sh":
            for line in block.splitlines():
                run(line)
        elif file := re.match(r"# (\w+\.py)\n", block):
            Path(file[1]).write_text(block)
        else:
            exec(compile(block, "docs/your-model.md", "exec"), {})


def run(line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program == "samestep"
    done = subprocess.run([sys.executable, "-m", "samestep", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = (
        r"Strategies that can train it: "
        if arguments[0] == "model"
        else r"took the \d+ steps of (torch|tf):single in float64"
    )
    assert re.search(told, " ".join(done.stdout.split())), done.stdout

"""What the README says is what happens: its commands run, its generated parts are current."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.experiments import readme

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
LINES = [
    line.partition("  #")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [line for line in LINES if line.startswith(("python ", "samestep "))]
TARGETS = [line for line in LINES if line.startswith("make ")]


def marks(command: str) -> list[pytest.MarkDecorator]:
    return [
        getattr(pytest.mark, name)
        for name in ("torch", "tf")
        if re.search(rf"\b{name}\b|(samestep |experiments\.)run (?!.*--framework)", command)
    ]


def test_every_line_is_a_command_that_is_tested_here() -> None:
    assert COMMANDS
    assert TARGETS
    assert set(LINES) == {*COMMANDS, *TARGETS}


@pytest.mark.parametrize("command", [pytest.param(line, marks=marks(line), id=line[:60]) for line in COMMANDS])
def test_a_command_runs(command: str, tmp_path: Path) -> None:
    program, *given = shlex.split(command)
    arguments = [sys.executable, *(["-m", program] if program == "samestep" else []), *given]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_is_there(target: str) -> None:
    done = subprocess.run(["make", "--dry-run", *shlex.split(target)[1:]], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_strategies_are_those_of_the_catalogues() -> None:
    current = readme.replaced(TEXT, "strategies", readme.strategies())
    assert current == TEXT, "run: python -m experiments.readme"


def test_the_results_are_a_comparison_of_both_frameworks() -> None:
    table = re.search(r"<!-- results -->(.*)<!-- /results -->", TEXT, re.DOTALL)
    assert table is not None
    for row in ("numpy:oracle", "torch:ddp", "tf:mirrored", "took the same"):
        assert row in table[1]

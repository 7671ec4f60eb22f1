"""What the README and its first pages say is what happens: its commands run, its generated parts are current."""

import ast
import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import samestep
from documenting import readme
from samestep.__main__ import main
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.judging.parity import judge
from samestep.common.mistakes.table import of_step
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.worker import worker
from samestep.experiments.comparing.comparison_request import every_cell
from samestep.experiments.comparing.speeds import MeasuredRow, speed_of
from samestep.experiments.comparing.stored import load
from tests.experiments.comparisons import keep
from tests.lent import LentLauncher, lend
from tests.one_batch_worker import FIND_PARTS
from tests.results import EVERY_CELL, made

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
PAGES = [TEXT, *((ROOT / "docs" / name).read_text() for name in ("running.md", "your-data.md"))]
LINES = [
    line.partition("  #")[0].strip()
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [line for line in LINES if line.startswith(("python ", "samestep "))]
TARGETS = [line for line in LINES if line.startswith("make ")]
MODEL, DATA = (block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL))


def marks(command: str) -> list[pytest.MarkDecorator]:
    """The frameworks that a command trains with; it is slow where the README's own commands, and tests, do the same."""
    names = [
        name
        for name in ("torch", "tf")
        if re.search(rf"\b{name}\b|(samestep |experiments\.)run (?!.*--framework)", command)
    ]
    trains = " run " in command and "--prepare" not in command and "--data" not in command
    return [getattr(pytest.mark, name) for name in (*names, *["slow"] * (trains and command not in TEXT))]


def test_every_line_is_a_command_that_is_tested_here() -> None:
    assert COMMANDS
    assert TARGETS
    assert set(LINES) == {*COMMANDS, *TARGETS}


@pytest.mark.parametrize("command", [pytest.param(line, marks=marks(line), id=line[:60]) for line in COMMANDS])
def test_a_command_runs(command: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    program, *given = shlex.split(command)
    if given[0] == "compare":
        _compare_in_this_process(given, tmp_path, request)
        return
    arguments = [sys.executable, *(["-m", program] if program == "samestep" else []), *given]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    if "--data" in given:
        subprocess.run([sys.executable, "-c", DATA], cwd=tmp_path, timeout=100, check=True)
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout


def _compare_in_this_process(given: list[str], folder: Path, request: pytest.FixtureRequest) -> None:
    """Gives a command to `samestep` in the tests' own fork servers, in which workers do all that they do for a user."""
    patch, output = (request.getfixturevalue(name) for name in ("monkeypatch", "capfd"))
    whole = LentLauncher(request.getfixturevalue("launcher"), worker.__name__, **{FIND_PARTS: "1"})
    lend(whole, patch)
    patch.chdir(folder)
    patch.setattr(sys, "argv", ["samestep", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    told = output.readouterr()
    assert not ended.value.code, told.err
    assert "Traceback" not in told.err
    assert told.out


def test_the_model_is_one() -> None:
    names: dict[str, object] = {}
    exec(compile(MODEL, "README.md", "exec"), names)
    assert isinstance(names["model"], samestep.Model)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_is_there(target: str) -> None:
    done = subprocess.run(["make", "--dry-run", *shlex.split(target)[1:]], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_generated_is_current() -> None:
    stale = [
        f"{name} of {page.name}"
        for page, name, content in readme.generated()
        if readme.replaced(page.read_text(), name, content) != page.read_text()
    ]
    assert not stale, "run: python -m documenting.readme"


TWO_GPUS = """
import ctypes, os, pathlib
glob, gpus = pathlib.Path.glob, [pathlib.Path(f"/dev/nvidia{number}") for number in range(2)]
pathlib.Path.glob = lambda path, *rest: iter(gpus) if path == pathlib.Path("/dev") else glob(path, *rest)
listdir = os.listdir
os.listdir = lambda path=".": [gpu.name for gpu in gpus] if str(path) == "/dev" else listdir(path)
os.cpu_count, os.sched_getaffinity, ctypes.CDLL = lambda: 64, lambda pid: set(range(64)), None
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.experiments.comparing.comparison_request import every_cell
from documenting import readme
print([(str(page), name, content) for page, name, content in readme.generated()])
"""


def test_nothing_that_is_generated_depends_on_the_machine() -> None:
    """Two GPUs, many cores and a narrow terminal change no page."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "0,1", "COLUMNS": "80"}
    there = subprocess.run(
        [sys.executable, "-c", TWO_GPUS], env=environment, capture_output=True, text=True, check=True
    )
    assert ast.literal_eval(there.stdout) == [(str(page), *rest) for page, *rest in readme.generated()]


def test_the_markers_of_a_generated_part_are_not_lost() -> None:
    with pytest.raises(AssertionError, match="the markers of 'strategies' are missing"):
        readme.replaced("no marker", "strategies", "")


def _takes_the_default(cell: str) -> bool:
    """Whether a row can train the default workload, on two devices if it takes several."""
    row = Cell.parse(cell)
    try:
        parse(row.apply_to(RunConfig(devices=2 if row.info.axes else 1, dtype=row.info.dtypes[0])))
    except ConfigError:
        return False
    return True


def test_the_results_are_a_comparison_of_both_frameworks() -> None:
    table = re.search(r"<!-- results -->(.*)<!-- /results -->", TEXT, re.DOTALL)
    assert table is not None
    assert all(f"| {row} " in table[1] for row in readme.FRONT)
    wrong = [line for line in table[1].splitlines() if "| NO " in line]
    assert len(wrong) == 1 and "(mistaken)" in wrong[0] and readme.MISTAKE in table[1]
    quoted = " ".join(table[1].replace("\n>", " ").split())
    assert of_step(readme.MISTAKE).format(devices=2) in quoted
    found = re.search(r"loss of step 1 is ([\d.]+) instead of ([\d.]+)", quoted)
    assert found is not None
    seen, wanted = map(float, found.groups())
    ones = {"kernel": np.ones(1)}
    assert judge("numpy:oracle", "float32", 1, [seen], [wanted], ones, ones).reason in quoted
    assert "took the oracle's" in table[1]
    assert max(map(len, table[1].splitlines())) <= readme.WIDTH == 100
    whole = re.search(r"<!-- results -->(.*)<!-- /results -->", readme.STRATEGIES.read_text(), re.DOTALL)
    assert whole is not None
    rows = re.findall(r"^\| (\w+:\w+)", whole[1], re.MULTILINE)
    missing = {cell for cell in map(str, every_cell(None)) if _takes_the_default(cell)} - set(rows)
    assert not missing, "run: samestep compare --out DIR; python -m documenting.readme DIR"


def test_results_are_as_wide_as_the_page_whatever_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, {name: [made(name)] for name in EVERY_CELL})
    printed = []
    for columns in ("80", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        printed.append(readme.results(tmp_path))
    assert printed[0] == printed[1]
    assert max(map(len, printed[0].splitlines())) <= 100
    assert "| 52.99 (52.99) | 36.45 (36.45) |" in printed[0]
    assert "16.2k" not in printed[0], "speeds of a tiny model say nothing of a strategy"


def test_what_is_said_of_the_wrong_row_fits_the_page(tmp_path: Path) -> None:
    keep(tmp_path, {name: [made(name)] for name in EVERY_CELL})
    found = load(tmp_path)
    right = made("torch:ddp")
    reason = (
        f"step 0: {of_step(readme.MISTAKE).format(devices=2)} (the loss of step 1 is 2.33704305 instead of 2.33774189)"
    )
    wrong = dataclasses.replace(right, parity=dataclasses.replace(right.parity, passed=False, reason=reason))
    shown = [
        MeasuredRow(each, speed_of([each]), f"torch:ddp{how}") for each, how in ((right, ""), (wrong, " (mistaken)"))
    ]
    lines = readme.front_table(found, shown).splitlines()
    assert max(map(len, lines)) <= readme.WIDTH
    assert [line.split("|")[2].strip() for line in lines if "torch:ddp" in line and "|" in line] == ["yes", "NO"]
    assert " ".join(line.removeprefix("> ") for line in lines if line.startswith("> ")) == reason

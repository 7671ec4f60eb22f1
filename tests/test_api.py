"""`import samestep`: the commands as functions, silent, typed, and as docs/api.md says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import samestep
from samestep.common.catalog import catalogue
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments.advise import main as advise_command
from samestep.experiments.advising.advice_text import document
from samestep.experiments.printing.formats import write
from tests.experiments.comparisons import MISSED, UNJUDGED, make_up
from tests.lent import lend
from tests.processes import descendants

DOC = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", DOC, re.DOTALL)
SMALL = {"workload": "synthetic-mlp+width=8", "dtype": "float64", "steps": 3}
IMPORT = (
    "import sys; before = set(sys.modules); import samestep; dir(samestep); samestep.ConfigError\n"
    "print({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))"
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs leave their directories here."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- what there is ----------------------------------------------------------------------------------------------------


def test_the_import_needs_the_standard_library_only() -> None:
    line = [sys.executable, "-c", IMPORT]
    done = subprocess.run(line, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "{'samestep'}\n", done.stderr


def test_everything_offered_is_there_and_documented() -> None:
    for name in samestep.__all__:
        assert getattr(samestep, name).__doc__
        assert name in dir(samestep)
    with pytest.raises(AttributeError, match=r"it offers .*run"):
        samestep.rnu  # noqa: B018 (looked up for its error)


def test_a_question_about_a_model_is_refused_in_a_line() -> None:
    with pytest.raises(samestep.ConfigError, match=r"nowhere\.py"):
        samestep.port("nowhere.py")
    with pytest.raises(samestep.ConfigError, match="unknown machine 'a101'"):
        samestep.advise("gpt3-175b", machine="a101")
    with pytest.raises(samestep.ConfigError, match="--machine here: its cores train in float32"):
        samestep.advise(machine="here", weights="bf16")
    with pytest.raises(samestep.ConfigError, match="there is nothing to report"):
        samestep.report("nowhere")


def test_advice_is_that_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    asked = ["--workload", "gpt3-175b", "--machine", "a100-80gb", "--nodes", "8", "--batch-size", "384"]
    assert advise_command([*asked, "--format", "json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    advice = samestep.advise("gpt3-175b", machine="a100-80gb", nodes=8, batch_size=384)
    assert printed == json.loads(write(document(advice), "json"))


# --- a run ------------------------------------------------------------------------------------------------------------


def test_a_run_that_was_cut_off_is_gone_on_with(here: Path) -> None:
    asked = {**SMALL, "steps": 40, "keep_state": True}
    whole = samestep.run("numpy:oracle", **asked, out="run", save_every="10", keep=9)
    assert whole.saves.steps and whole.resumed_at is None
    (here / "run" / "result.json").unlink()
    again = samestep.resume("run")
    assert again.resumed_at == max(whole.saves.steps) and again.attempt == 2
    assert (again.losses, again.state_sha256) == (whole.losses, whole.state_sha256)
    with pytest.raises(
        samestep.ConfigError, match="it holds a finished run; --start-from continues from where it ended"
    ):
        samestep.resume("run")


def test_a_run_prints_nothing_and_can_be_loaded(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = descendants()
    result = samestep.run("numpy:oracle", **SMALL, out="run")
    assert capfd.readouterr() == ("", "")
    assert result.losses[0] > 0
    assert samestep.load("run") == samestep.load(here / "run") == result
    assert descendants() == before


@pytest.mark.parametrize(
    ("cell", "settings", "told"),
    [
        ("torch:ddp", {"divices": 2}, "unknown setting 'divices'. Did you mean 'devices'?"),
        ("torch:ddp", {"prepare": True}, "unknown setting 'prepare'"),
        ("torch:ddp", {"framework": "tf"}, "unknown setting 'framework'"),
        ("torch:ddp", {"steps": 0}, "--steps is 0; give a whole number from 1 up."),
        ("torch:ddp", {"steps": "many"}, "--steps is 'many'; give a whole number."),
        ("torch:ddp", {"steps": [3]}, "--steps is [3]; give a whole number."),
        ("torch:ddp", {"reduce": "ring"}, "--reduce is an option of tf:mirrored, not of torch:ddp."),
        ("torch:ddp+clip_norm=1", {"clip_norm": 2.0}, "both set clip_norm; give it once."),
        ("fdsp", {}, "unknown strategy 'fdsp'. Did you mean 'fsdp'?"),
    ],
)
def test_a_wrong_request_is_one_line(cell: str, settings: dict, told: str, here: Path) -> None:
    with pytest.raises(samestep.ConfigError) as caught:
        samestep.run(cell, **settings)
    assert told in str(caught.value)
    assert list(here.iterdir()) == []


def test_a_run_that_missed_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch, {"torch:ddp": MISSED})
    with pytest.raises(samestep.ParityFailed, match="torch:ddp did not take the same step: step 3"):
        samestep.run("ddp", devices=2)


def test_what_is_no_run_cannot_be_loaded(here: Path) -> None:
    with pytest.raises(samestep.ConfigError, match=r"holds no readable result\.json"):
        samestep.load(here)


# --- a comparison -----------------------------------------------------------------------------------------------------


def test_a_comparison_prints_nothing_unless_asked(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    started = make_up(monkeypatch, {"tf:mirrored": UNJUDGED})
    settings = {"batch_size": 48, "clip_norm": 1.0, "parity": True}
    comparison = samestep.compare(["ddp", "torch:hybrid+mesh=pipe=2,data=2"], require=["mirrored"], **settings)
    assert capfd.readouterr() == ("", "")
    assert [row.cell for row in comparison.rows] == [
        "numpy:oracle",
        "torch:ddp",
        "torch:hybrid+mesh=pipe=2,data=2",
        "tf:mirrored",
    ]
    assert [run.mesh.size for run, _ in started] == [1, 2, 4, 2]
    assert {(run.batch_size, run.techniques.clip_norm) for run, _ in started} == {(48, 1.0)}
    assert comparison.exit_code == 3
    with pytest.raises(samestep.Unavailable, match="tf:mirrored, which must be judged, was not judged"):
        comparison.require()
    assert "| torch:ddp" in comparison.table()
    samestep.compare(["ddp"], progress=True)
    told = capfd.readouterr()
    assert told.out == ""
    assert "torch:ddp: " in told.err


def test_without_cells_it_takes_every_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch, {})
    assert [row.cell for row in samestep.compare().rows] == [
        f"{framework}:{row.name}" for framework, row in catalogue()
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"cells": []}, "cells '' has an empty cell"),
        ({"cells": ["torch:ddpp"]}, "Did you mean 'ddp'?"),
        ({"cells": ["ddp"], "mesh": "data=2"}, "unknown setting 'mesh'"),
        ({"require": ["ddp"], "parity": False}, "--require judges what --no-parity leaves unjudged"),
    ],
)
def test_a_wrong_comparison_is_one_line(arguments: dict, told: str) -> None:
    with pytest.raises(samestep.ConfigError) as caught:
        samestep.compare(**arguments)
    assert told in str(caught.value)


def test_an_interrupted_comparison_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch, {"torch:ddp": KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        samestep.compare(["ddp"])


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.tf
def test_every_block_of_the_page_runs(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lend(launcher, monkeypatch)
    assert len(BLOCKS) == 10
    names: dict[str, object] = {}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"docs/api.md, block {number + 1}", "exec"), names)
    told = capfd.readouterr()
    assert told.err == ""
    for line in (line.partition("  # ")[2] for line in DOC.splitlines() if "print(error)" in line):
        assert line in told.out
    for row in names["comparison"].rows:
        assert f"{row.cell} {row.status}" in told.out

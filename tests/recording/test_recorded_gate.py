"""The gate of a pull request as docs/record.md has it, with reruns that start anew: of a script that needs no framework."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.experiments import diff
from tests.recording.numpy_script import Script, run
from tests.recording.test_diff_command import TO_COMMIT, TO_GATE

ROOT = Path(__file__).parents[2]
SCRIPT = """import dataclasses, os, pathlib, sys
from samestep.common.steps.recording import VARIABLE, RecordOptions
from tests.recording.numpy_script import Script, run
options = RecordOptions.from_json(os.environ[VARIABLE])
changes = {"perturbed": options.perturb, "steps": options.stop_after or 6, "command": options.command}
run(dataclasses.replace(Script(MAIN), **changes), pathlib.Path(options.out))
"""


def samestep(line: str, below: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line.replace("python train.py", f"{shlex.quote(sys.executable)} train.py"))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}
    line = [sys.executable, "-m", "samestep", *words]
    return subprocess.run(line, cwd=below, env=environment, capture_output=True, text=True, timeout=200, check=False)


def gated(below: Path, of_main: str, of_request: str) -> subprocess.CompletedProcess[str]:
    """Commits a record of the script as it is on the main branch, and holds that of the pull request against it."""
    (below / "train.py").write_text(SCRIPT.replace("MAIN", of_main))
    ended = samestep(TO_COMMIT, below)
    assert ended.returncode == 0, ended.stderr
    (below / "train.py").write_text(SCRIPT.replace("MAIN", of_request))
    return samestep(TO_GATE, below)


def test_a_request_that_takes_the_same_step_passes(tmp_path: Path) -> None:
    found = gated(tmp_path, "", "flipped=True")
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("same: 5 steps\n")
    kept = {path.name for path in (tmp_path / "records" / "train" / "reruns").iterdir()}
    assert {f"perturbed-{seed}-0" for seed in range(4)} <= kept


def test_a_request_that_takes_another_one_fails(tmp_path: Path) -> None:
    """The script of the main branch is there no more, so only reruns of the request's can be the yardstick."""
    found = gated(tmp_path, "", "mistake='off_by_a_little'")
    assert found.returncode == 4, found.stdout + found.stderr
    assert found.stdout.startswith("not the same: step 0, gradient, layer net.head: every gradient is 1.00010 x A's")
    assert "A cannot be run again" in found.stdout and "Reruns of B measured how far rounding goes" in found.stdout


def test_a_request_whose_loss_alone_is_another_passes_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    sides = [str(run(Script(mistake=each), tmp_path / f"run{each}")) for each in ("", "loss_summed")]
    assert diff.main(sides) == 0
    assert "::warning title=samestep diff::same, but for the loss: 6 steps" in capsys.readouterr().err

"""How a command ends where what it prints cannot be read, or hardly."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from samestep import __main__
from samestep.common.errors import signal_exit_code
from samestep.experiments.cli import ending

ROOT = str(Path(__file__).parents[2])
TRAIN = "run oracle --dtype float64 --workload digits-mlp+width=32 --batch-size 48 --steps 3 --no-parity"


def given(line: str, redirected: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Gives a command to a shell, with its streams redirected."""
    return subprocess.run(
        f"{sys.executable} -m samestep {line} {redirected}",
        shell=True,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", ">&-", "<&- >&- 2>&-"])
def test_a_good_run_is_no_worse_for_what_nobody_reads(tmp_path: Path, redirected: str) -> None:
    done = given(f"{TRAIN} --out {tmp_path}/run", redirected)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").exists()
    assert "Traceback" not in done.stderr


def test_a_path_that_a_terminal_cannot_spell(tmp_path: Path) -> None:
    done = given(f"{TRAIN} --out {tmp_path}/ünï", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert f"Run: {tmp_path}/\\xfcn\\xef" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("line", ["--version", "strategies", f"{TRAIN} --out RUN"])
def test_a_stdout_without_room_is_told_once(tmp_path: Path, line: str) -> None:
    done = given(line.replace("RUN", f"{tmp_path}/run"), ">/dev/full")
    assert done.returncode == 1
    assert done.stderr == "samestep: what was found cannot be printed: No space left on device\n"
    assert not (tmp_path / "run").exists(), "nothing was started"


def test_a_reader_that_leaves_early_is_told_nothing() -> None:
    assert given("strategies", "| head -1").stderr == ""


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As nohup starts a command that outlives its terminal."""
    line = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "from samestep.experiments.cli.ending import run_command;"
        "run_command(lambda given: os.kill(os.getpid(), signal.SIGHUP) or 0, [])"
    )
    assert subprocess.run([sys.executable, "-c", line], cwd=ROOT, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")])
def test_numpy_has_one_thread_unless_told_otherwise(given: dict[str, str], threads: str) -> None:
    """More wait for each other, and where others use the cores they wait most of the time."""
    line = (
        "import os, sys; from samestep.experiments import compare, port, predict, run;"
        "from samestep.experiments.cli.ending import run_command;"
        "run_command(lambda given: print(os.environ['OPENBLAS_NUM_THREADS'], 'numpy' in sys.modules) or 0, [])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"} | given
    done = subprocess.run(
        [sys.executable, "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == [threads, "False"]


def test_the_overview_of_all_commands_reads_no_catalogue() -> None:
    look = "try: main()\nfinally: print('samestep.common.catalog' in sys.modules)"
    line = f"import sys; from samestep.__main__ import main\n{look}"
    done = subprocess.run([sys.executable, "-c", line, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("samestep: ") and done.stdout.endswith("\nFalse\n")


def test_the_overview_of_all_commands_fits_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    __main__._begin([])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 60


@pytest.mark.parametrize(("name", "code"), [("", 130), ("SIGTERM", 143), ("SIGHUP", 129), ("SIGQUIT", 131)])
def test_the_exit_code_of_a_signal_is_that_of_shells(name: str, code: int) -> None:
    assert signal_exit_code(KeyboardInterrupt(*[name] if name else [])) == code
    assert code == 128 + signal.Signals[name or "SIGINT"]


def test_an_error_is_wrapped_for_a_terminal_and_one_line_for_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "samestep: unknown strategy 'dpp'. Did you mean 'dp'? Choose from: single, ddp, rpc_parameter_server."
    assert ending._wrapped(line) == line
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    wrapped = ending._wrapped(line).splitlines()
    assert len(wrapped) > 2
    assert max(map(len, wrapped)) <= 40
    assert " ".join(each.strip() for each in wrapped) == line

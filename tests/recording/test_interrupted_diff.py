"""A rerun that cannot be finished: Ctrl-C leaves nothing running and loses nothing, and so does a disk that is full."""

import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from samestep.common.runtime.processes import descendants
from samestep.common.steps.joining import read_run
from samestep.common.steps.rank_reading import read_rank
from samestep.common.steps.record import header_frame, rank_file
from tests.recording.numpy_script import Script, run
from tests.recording.records import ROOT, SCRIPTS, record

SLEEPER = """
import os, pathlib, signal, subprocess, sys, time
{ignoring}
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
path = pathlib.Path("pids.tmp")
path.write_text(f"{{os.getpid()}} {{child.pid}}")
path.rename("pids")
time.sleep(100)
"""


def with_command(directory: Path, command: tuple[str, ...]) -> Path:
    """Puts another command into the header of a record."""
    path = directory / rank_file(0)
    header, content = read_run(directory).header, path.read_bytes()
    start = header_frame(header)
    assert content.startswith(start)
    other = dataclasses.replace(header, command=command, directory=str(directory.parent))
    path.write_bytes(header_frame(other) + content[len(start) :])
    return directory


@pytest.fixture
def sides(tmp_path: Path) -> list[str]:
    a = with_command(run(Script(), tmp_path / "a"), (sys.executable, "sleeper.py"))
    run(Script(perturbed=0), a / "reruns" / "perturbed-0-0")
    return [str(a), str(run(Script(flipped=True), tmp_path / "b"))]


def interrupted(sides: list[str], tmp_path: Path, number: int) -> tuple[int, str, list[int]]:
    """Exit code, stderr and the processes of a diff that gets a signal while it runs A again."""
    line = [sys.executable, "-m", "samestep", "diff", *sides]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not (tmp_path / "pids").exists():
                assert process.poll() is None, process.communicate()
                time.sleep(0.02)
            pids = (tmp_path / "pids").read_text().split()  # what a rerun makes goes with it
            process.send_signal(number)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    return process.returncode, said, [int(pid) for pid in pids]


@pytest.mark.parametrize(
    ("number", "code", "ignoring"),
    [(signal.SIGINT, 130, ""), (signal.SIGTERM, 143, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")],
)
def test_an_interrupt_ends_the_rerun_and_keeps_the_others(
    sides: list[str], tmp_path: Path, number: int, code: int, ignoring: str
) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER.format(ignoring=ignoring))
    ended, said, pids = interrupted(sides, tmp_path, number)
    assert ended == code, said
    assert said.splitlines()[-1].endswith("nothing is left running.") and "Traceback" not in said
    assert not descendants(pids)
    assert [path.name for path in (tmp_path / "a" / "reruns").iterdir()] == ["perturbed-0-0"]


def test_a_full_disk_ends_a_rerun_at_once(tmp_path: Path) -> None:
    script = f"import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{(SCRIPTS / 'unframed.py').read_text()}"
    (tmp_path / "full.py").write_text(f"{script}\nimport time; time.sleep(100)")
    # Python would keep what fits of the bytecode that it compiles here, and no later process could import such a module.
    command = f"export PYTHONDONTWRITEBYTECODE=1; ulimit -f 4; exec {sys.executable} {tmp_path / 'full.py'}"
    done = record("--out", str(tmp_path / "out"), "--stop-after", "9", "--", "bash", "-c", command)
    assert done.returncode == 1, done.stderr
    assert "samestep: the record ends at step" in done.stderr and "File too large" in done.stderr


@pytest.mark.torch
def test_the_last_step_that_is_wanted_ends_the_workers_of_a_script(tmp_path: Path) -> None:
    wait = (
        "lambda: (os.close(1), os.close(2), time.sleep(60))"  # and keep no pipe open, for whose end the test would wait
    )
    worker = f"import multiprocessing, os, time; w = multiprocessing.Process(target={wait}, daemon=True); w.start()"
    (tmp_path / "loader.py").write_text(f"{worker}; print(w.pid, flush=True)\n{(SCRIPTS / 'plain.py').read_text()}")
    done = record(
        "--out", str(tmp_path / "out"), "--stop-after", "2", "--", sys.executable, str(tmp_path / "loader.py")
    )
    assert done.returncode == 0, done.stderr
    assert not descendants([int(done.stdout.split()[0])])


@pytest.mark.torch
def test_a_worker_that_is_a_rank_takes_its_last_step_too(tmp_path: Path) -> None:
    script = SCRIPTS / "daemonic.py"
    done = record("--out", str(tmp_path / "out"), "--stop-after", "2", "--", sys.executable, str(script))
    assert done.returncode == 0, done.stderr
    assert [each.number for each in read_run(tmp_path / "out").steps] == [-1, 0, 1]
    with (tmp_path / "out" / rank_file(1)).open("rb") as file:
        assert [each.number for each in read_rank(file, "rank 1")[1]] == [-1, 0, 1]

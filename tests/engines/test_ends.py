"""Jobs that Slurm itself ends: its own word for it, in time, nothing left, and a resumed run goes on where it was."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.runtime.checkpoints.committed import find_folders
from samestep.common.steps.log import read_log
from tests.engines.slurm_box import SlurmBox
from tests.engines.test_jobs import ENDLESS, WORKLOAD, command, ended, workers_of

NOTICE_SECONDS = 3.0
"""How long after Slurm's own word it may take until the command has ended with it."""
OVER = ("TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "NODE_FAIL", "CANCELLED", "FAILED", "COMPLETED")

pytestmark = [pytest.mark.torch, pytest.mark.slurm]


def state_of(slurm: SlurmBox, number: str) -> str:
    shown = slurm.run("scontrol", "show", "job", number)
    return shown.partition("JobState=")[2].partition(" ")[0]


def wait_until(happens: Callable[[], bool], process: "subprocess.Popen[str]", seconds: float = 120) -> None:
    """Waits for what a command that goes on brings about."""
    deadline = time.monotonic() + seconds
    while not happens():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.1)


def urgent_job(slurm: SlurmBox, tmp_path: Path) -> str:
    """Asks for all nodes, ahead of every other job; returns the number of the job."""
    line = ("sbatch", "--parsable", "-purgent", "-N4", "--exclusive", f"--output={tmp_path / 'urgent.log'}")
    return slurm.run(*line, "--wrap", "sleep 60").strip()


def training(slurm: SlurmBox, directory: Path, target: str) -> tuple["subprocess.Popen[str]", str]:
    """A run that has saved, and the number of its job."""
    words = ["run", "torch:ddp", *WORKLOAD, *ENDLESS, "--save-every", "100", "--on", target, "--out", str(directory)]
    process = command(*words, environment=slurm.environment)
    wait_until(lambda: bool(find_folders(directory)), process)
    return process, next(directory.glob("slurm-*.log")).stem.partition("-")[2]


def note_end(slurm: SlurmBox, number: str) -> tuple[threading.Thread, list[float]]:
    """Looks for the moment in which Slurm says that a job is over."""
    seen: list[float] = []

    def watch() -> None:
        while state_of(slurm, number) not in OVER:
            time.sleep(0.1)
        seen.append(time.monotonic())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    return watcher, seen


def told_in_time(
    slurm: SlurmBox, process: "subprocess.Popen[str]", directory: Path, number: str, cause: Callable[[], None]
) -> str:
    """What the command says of a job that comes to an end, with exit code 1, and soon after Slurm itself."""
    watcher, seen = note_end(slurm, number)
    cause()
    _, told = process.communicate(timeout=150)
    until = time.monotonic()
    watcher.join(timeout=10)
    assert process.returncode == 1, told
    assert until - seen[0] < NOTICE_SECONDS
    assert not workers_of(directory)
    return told


def goes_on(slurm: SlurmBox, directory: Path) -> None:
    """A resumed run takes steps from the newest checkpoint on; Ctrl-C ends it."""
    saved = int(find_folders(directory)[0].name.partition("-")[2])
    again = command("run", "--resume", str(directory), "--on", "slurm:nodes=2", environment=slurm.environment)
    wait_until(lambda: (log := read_log(directory)).attempt >= 2 and log.windows[-1].step > saved, again)
    again.send_signal(signal.SIGINT)
    assert ended(again, directory)[0] == 130


@pytest.mark.slow
def test_a_time_limit(slurm: SlurmBox, tmp_path: Path) -> None:
    process, number = training(slurm, tmp_path / "run", "slurm:nodes=2,time=1")
    told = told_in_time(slurm, process, tmp_path / "run", number, lambda: None)
    assert f"Slurm's job {number} ended without a result (TIMEOUT)" in told
    goes_on(slurm, tmp_path / "run")


@pytest.mark.slow
def test_a_job_that_another_one_takes_the_place_of(slurm: SlurmBox, tmp_path: Path) -> None:
    process, number = training(slurm, tmp_path / "run", "slurm:nodes=2,partition=scavenger")
    urgent: list[str] = []

    def cause() -> None:
        urgent.append(urgent_job(slurm, tmp_path))

    told = told_in_time(slurm, process, tmp_path / "run", number, cause)
    assert f"Slurm's job {number} ended without a result (PREEMPTED)" in told
    slurm.run("scancel", *urgent)
    goes_on(slurm, tmp_path / "run")


@pytest.mark.slow
def test_a_job_that_is_put_back_into_the_queue_goes_on_later(slurm: SlurmBox, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    process, number = training(slurm, directory, "slurm:nodes=2,partition=requeued")
    urgent = urgent_job(slurm, tmp_path)
    wait_until(lambda: state_of(slurm, number) == "PENDING", process, 60)
    assert not workers_of(directory)
    slurm.run("scancel", urgent)
    slurm.run("scontrol", "update", f"jobid={number}", "starttime=now")  # Slurm itself waits for two minutes
    wait_until(lambda: read_log(directory).attempt >= 2, process)
    process.send_signal(signal.SIGINT)
    assert ended(process, directory)[0] == 130


@pytest.mark.slow
def test_a_node_that_is_lost(slurm: SlurmBox, tmp_path: Path) -> None:
    process, number = training(slurm, tmp_path / "run", "slurm:nodes=2")
    slurm.run("scontrol", "update", f"jobid={number}", "requeue=0")  # otherwise Slurm starts it again
    nodes = slurm.run("scontrol", "show", "job", number).partition("\n   NodeList=")[2].partition("\n")[0]
    last = f"n{nodes.strip('n[]')[-1]}"
    told = told_in_time(slurm, process, tmp_path / "run", number, lambda: slurm.lose(last))
    slurm.restore(last)
    assert f"Slurm's job {number} ended without a result (NODE_FAIL)" in told
    goes_on(slurm, tmp_path / "run")


@pytest.mark.slow
def test_memory_that_a_job_was_not_given(slurm: SlurmBox, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    words = ["run", "torch:ddp", *WORKLOAD, *ENDLESS, "--on", "slurm:nodes=2,mem=100", "--out", str(directory)]
    process = command(*words, environment=slurm.environment)
    code, told = ended(process, directory)
    assert code == 1
    assert "exceeded memory limit" in next(line for line in told.splitlines() if "ended without a result" in line)
    assert os.path.exists(directory / "config.json")
    again = ["run", "--resume", str(directory), "--on", "slurm:nodes=2"]
    more = command(*again, environment=slurm.environment)
    wait_until((directory / "metrics.jsonl").exists, more)
    more.send_signal(signal.SIGINT)
    assert ended(more, directory)[0] == 130

"""Jobs that Slurm itself ends: its own word for it, in time, nothing left, and a resumed run goes on where it was."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.runtime.checkpoints.committed import find_folders
from samestep.common.steps.log import read_log
from tests.engines.commands import ENDLESS, WORKLOAD, Command, Process, workers_of
from tests.engines.notices import slurms_notice, told_in_time
from tests.engines.slurm_box import SlurmBox
from tests.engines.test_jobs import ended, job_of

pytestmark = [pytest.mark.torch, pytest.mark.slurm]


def wait_until(happens: Callable[[], bool], process: Process, seconds: float = 120) -> None:
    """Waits for what a command that goes on brings about."""
    deadline = time.monotonic() + seconds
    while not happens():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.1)


def urgent_job(slurm: SlurmBox, tmp_path: Path) -> str:
    """Asks for all nodes, ahead of every other job; returns the number of the job."""
    line = ("sbatch", "--parsable", "-purgent", "-N4", "--exclusive", f"--output={tmp_path / 'urgent.log'}")
    return slurm.run(*line, "--wrap", "sleep 60").strip()


def training(command: Command, slurm: SlurmBox, directory: Path, target: str) -> tuple[Process, str]:
    """A run that has saved, and the number of its job."""
    words = ["run", "torch:ddp", *WORKLOAD, *ENDLESS, "--save-every", "100", "--on", target, "--out", str(directory)]
    process = command(*words, environment=slurm.environment)
    wait_until(lambda: bool(find_folders(directory)), process)
    return process, job_of(directory)


def goes_on(command: Command, slurm: SlurmBox, directory: Path) -> None:
    """A resumed run takes steps from the newest checkpoint on; Ctrl-C ends it."""
    saved = int(find_folders(directory)[0].name.partition("-")[2])
    again = command("run", "--resume", str(directory), "--on", "slurm:nodes=2", environment=slurm.environment)
    wait_until(lambda: (log := read_log(directory)).attempt >= 2 and log.windows[-1].step > saved, again)
    again.send_signal(signal.SIGINT)
    assert ended(again, directory)[0] == 130


@pytest.mark.slow
def test_a_time_limit(command: Command, slurm: SlurmBox, tmp_path: Path) -> None:
    process, number = training(command, slurm, tmp_path / "run", "slurm:nodes=2,time=1")
    notice = slurms_notice(slurm, number)
    told = told_in_time(process, tmp_path / "run", notice, lambda: None, "Slurm, the time limit")
    assert f"Slurm's job {number} ended without a result (TIMEOUT)" in told
    goes_on(command, slurm, tmp_path / "run")


@pytest.mark.slow
def test_somebody_who_cancels_the_job(command: Command, slurm: SlurmBox, tmp_path: Path) -> None:
    process, number = training(command, slurm, tmp_path / "run", "slurm:nodes=2")
    notice = slurms_notice(slurm, number)
    told = told_in_time(process, tmp_path / "run", notice, lambda: slurm.cancel(number), "Slurm, the job is cancelled")
    assert f"Slurm's job {number} ended without a result (CANCELLED)" in told


@pytest.mark.slow
def test_a_job_that_another_one_takes_the_place_of(command: Command, slurm: SlurmBox, tmp_path: Path) -> None:
    process, number = training(command, slurm, tmp_path / "run", "slurm:nodes=2,partition=scavenger")
    urgent: list[str] = []

    def cause() -> None:
        urgent.append(urgent_job(slurm, tmp_path))

    notice = slurms_notice(slurm, number)
    told = told_in_time(process, tmp_path / "run", notice, cause, "Slurm, another job comes first")
    assert f"Slurm's job {number} ended without a result (PREEMPTED)" in told
    slurm.run("scancel", *urgent)
    goes_on(command, slurm, tmp_path / "run")


@pytest.mark.slow
def test_a_job_that_is_put_back_into_the_queue_goes_on_later(command: Command, slurm: SlurmBox, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    process, number = training(command, slurm, directory, "slurm:nodes=2,partition=requeued")
    urgent = urgent_job(slurm, tmp_path)
    wait_until(lambda: slurm.state(number) == "PENDING", process, 60)
    assert not workers_of(directory)
    slurm.run("scancel", urgent)
    # Slurm itself waits for two minutes. In the second in which it took the job back, nodes refuse it: "credential revoked".
    slurm.run("scontrol", "update", f"jobid={number}", "starttime=now+5")
    wait_until(lambda: read_log(directory).attempt >= 2, process)
    process.send_signal(signal.SIGINT)
    assert ended(process, directory)[0] == 130


@pytest.mark.slow
def test_a_node_that_is_lost(command: Command, slurm: SlurmBox, tmp_path: Path) -> None:
    process, number = training(command, slurm, tmp_path / "run", "slurm:nodes=2")
    slurm.run("scontrol", "update", f"jobid={number}", "requeue=0")  # otherwise Slurm starts it again
    nodes = slurm.run("scontrol", "show", "job", number).partition("\n   NodeList=")[2].partition("\n")[0]
    last = f"n{nodes.strip('n[]')[-1]}"
    notice = slurms_notice(slurm, number)
    told = told_in_time(process, tmp_path / "run", notice, lambda: slurm.lose(last), "Slurm, a host is lost")
    slurm.restore(last)
    assert f"Slurm's job {number} ended without a result (NODE_FAIL)" in told
    goes_on(command, slurm, tmp_path / "run")


@pytest.mark.slow
def test_memory_that_a_job_was_not_given(command: Command, slurm: SlurmBox, tmp_path: Path) -> None:
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

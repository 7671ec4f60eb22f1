"""Runs that samestep hands to the engines themselves: `--on`."""

import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from samestep.common.runtime.records import load_result
from samestep.common.steps.log import METRICS
from tests.conftest import RunCell
from tests.engines.commands import ENDLESS, WORKLOAD, Command, Process, descendants, kill, workers_of
from tests.engines.notices import DRIVERS, NOTICE_SECONDS, Notice, commands_notice, slurms_notice, told_in_time
from tests.engines.slurm_box import SlurmBox


def endless(command: Command, on: tuple[str, Mapping[str, str]], directory: Path, *behind: str) -> Process:
    """A run that trains by now."""
    words = ["run", "torch:ddp", *WORKLOAD, *ENDLESS, "--on", on[0], "--out", str(directory)]
    process = command(*words, environment=on[1], behind=behind)
    deadline = time.monotonic() + 120
    while not (directory / METRICS).exists() or (directory / METRICS).read_bytes().count(b"\n") < 3:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.2)
    return process


def ended(process: Process, directory: Path) -> tuple[int, str]:
    """Its exit code and what it said; nothing of it runs any more."""
    _, told = process.communicate(timeout=60)
    assert not workers_of(directory)
    return process.returncode, told


def job_of(directory: Path) -> str:
    """The number of the job of Slurm that has a run."""
    return next(directory.glob("slurm-*.log")).stem.partition("-")[2]


def notice_of(process: Process, on: str, directory: Path, request: pytest.FixtureRequest) -> Notice:
    """What an engine does when a run is over."""
    engine = on.partition(":")[0]
    if engine == "slurm":
        return slurms_notice(request.getfixturevalue("slurm"), job_of(directory))
    return commands_notice(process, engine)


@pytest.mark.slow
@pytest.mark.torch
def test_a_rank_that_is_killed_is_named_and_nothing_is_left(
    command: Command, on: tuple[str, dict[str, str]], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    process = endless(command, on, directory)
    notice, rank = notice_of(process, on[0], directory, request), workers_of(directory)[-1]
    told = told_in_time(process, directory, notice, lambda: kill(rank), f"{on[0]}, a rank is killed")
    said = next(line for line in told.splitlines() if "ended without a result" in line)
    assert any(word in said for word in ("Killed", "exitcode", "SIGKILL", "on signal 9"))
    assert re.search(r"(rank|task)\W+[01]\b", said), said


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("on", ["mpi", "torchrun", "ray"], indirect=True)
def test_an_engines_own_command_that_is_killed_leaves_nothing(
    command: Command, on: tuple[str, dict[str, str]], tmp_path: Path
) -> None:
    process, engine = endless(command, on, tmp_path / "run"), on[0].partition(":")[0]
    os.kill(descendants(process.pid, DRIVERS[engine])[0], signal.SIGKILL)
    begun = time.monotonic()
    _, told = process.communicate(timeout=60)
    seconds = time.monotonic() - begun
    assert process.returncode == 1 and "ended without a result" in told
    assert seconds < NOTICE_SECONDS
    deadline = begun + 60  # Ray waits for half a minute for a client that may come back
    while workers_of(tmp_path / "run"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    print(
        f"\n{on[0]}, the job is killed: samestep {seconds:.1f} s later, no rank after {time.monotonic() - begun:.1f} s"
    )


@pytest.mark.slow
@pytest.mark.torch
def test_ctrl_c_cancels_the_job(command: Command, on: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    process = endless(command, on, tmp_path / "run")
    process.send_signal(signal.SIGINT)
    assert ended(process, tmp_path / "run")[0] == 130


@pytest.mark.torch
@pytest.mark.slurm
def test_a_job_that_slurm_ends_is_named_and_goes_on(
    command: Command, slurm: SlurmBox, run_cell: RunCell, tmp_path: Path
) -> None:
    """It ends with the losses of a local run that nobody interrupts, bit for bit."""
    directory = tmp_path / "run"
    words = ["run", "torch:ddp", *WORKLOAD, "--steps", "400", "--save-every", "20", "--on", "slurm:nodes=2"]
    process = command(*words, "--out", str(directory), environment=slurm.environment)
    deadline = time.monotonic() + 120
    while not list(directory.glob("checkpoints/step-*/commit.json")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    number = job_of(directory)
    slurm.cancel(number)
    code, told = ended(process, directory)
    assert code == 1
    assert f"Slurm's job {number} ended without a result (CANCELLED)" in told
    again = command("run", "--resume", str(directory), "--on", "slurm:nodes=2", environment=slurm.environment)
    code, told = ended(again, directory)
    assert code == 0, told
    result = load_result(directory)
    assert result.parity.passed and result.resumed_at
    whole = run_cell("torch:ddp", WORKLOAD[1], steps=400, batch_size=48, dtype="float64", devices=2)
    assert result.losses == whole.losses


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.tf
@pytest.mark.slurm
def test_rows_of_a_comparison_are_jobs(command: Command, slurm: SlurmBox, tmp_path: Path) -> None:
    rows = "torch:ddp,torch:fsdp,tf:multi_worker_mirrored,tf:mirrored,tf:parameter_server,torch:single"
    words = ["compare", "--strategies", rows, "--steps", "8", *WORKLOAD, "--on", "slurm:nodes=2", "--wide"]
    process = command(*words, "--out", str(tmp_path / "all"), environment=slurm.environment)
    told, said = process.communicate(timeout=280)
    assert process.returncode == 0, said
    assert len(list((tmp_path / "all").rglob("slurm-*.log"))) == 7, "the oracle as well"
    told = " ".join(told.split())
    assert told.count(" yes ") >= 6
    assert "Importing" not in said and "including the import of the framework" in told
    assert "--on slurm:nodes=2" in told, "the line that does it again"

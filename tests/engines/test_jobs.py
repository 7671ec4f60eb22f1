"""Runs that samestep hands to the engines themselves: `--on`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from samestep.common.runtime.records import load_result
from samestep.common.steps.log import METRICS
from tests.engines.slurm_box import SlurmBox

ROOT = Path(__file__).parents[2]
WORKLOAD = ["--workload", "digits-mlp+width=32", "--batch-size", "48", "--dtype", "float64", "--devices", "2"]
ENDLESS = ["--steps", "9000000", "--no-parity"]


def command(*words: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "samestep", *words]
    own = {**os.environ, **environment}
    return subprocess.Popen(line, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def workers_of(directory: Path) -> list[int]:
    """The processes of a run, wherever an engine put them."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().decode().split("\0")
        except OSError:
            continue
        if [word for word in words if word != "-u"][1:5] == ["-m", "samestep", "worker", str(directory)]:
            found.append(int(each.parent.name))
    return found


@pytest.fixture(
    params=[
        pytest.param("slurm", marks=pytest.mark.slurm),
        pytest.param("mpi", marks=pytest.mark.mpi),
        pytest.param("torchrun"),
        pytest.param("ray", marks=pytest.mark.ray),
    ]
)
def on(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, str]]]:
    """Where to start a run, and the environment that takes."""
    if request.param == "slurm":
        yield "slurm:nodes=2", request.getfixturevalue("slurm").environment
    elif request.param == "ray":
        yield request.getfixturevalue("ray").target, request.getfixturevalue("ray").environment
    else:
        yield request.param, {}


def endless(on: tuple[str, dict[str, str]], directory: Path) -> subprocess.Popen[str]:
    """A run that trains by now."""
    words = ["run", "torch:ddp", *WORKLOAD, *ENDLESS, "--on", on[0], "--out", str(directory)]
    process = command(*words, environment=on[1])
    deadline = time.monotonic() + 120
    while not (directory / METRICS).exists() or (directory / METRICS).read_bytes().count(b"\n") < 3:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.2)
    return process


def ended(process: subprocess.Popen[str], directory: Path) -> tuple[int, str]:
    """Its exit code and what it said; nothing of it runs any more."""
    _, told = process.communicate(timeout=60)
    assert not workers_of(directory)
    return process.returncode, told


@pytest.mark.slow
@pytest.mark.torch
def test_a_rank_that_is_killed_is_named_and_nothing_is_left(on: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    process = endless(on, tmp_path / "run")
    os.kill(workers_of(tmp_path / "run")[-1], signal.SIGKILL)
    code, told = ended(process, tmp_path / "run")
    assert code == 1
    said = next(line for line in told.splitlines() if "ended without a result" in line)
    assert any(word in said for word in ("Killed", "exitcode", "SIGKILL", "on signal 9"))


def descendants(process: int, of: str) -> list[int]:
    """The processes below one whose command line has a word, the nearest first."""
    found, above = [], [process]
    while above:
        each = above.pop(0)
        listed = Path(f"/proc/{each}/task/{each}/children").read_text().split()
        above += map(int, listed)
        found += [int(pid) for pid in listed if of in Path(f"/proc/{pid}/cmdline").read_text()]
    return found


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("on", ["mpi", "torchrun", "ray"], indirect=True)
def test_an_engines_own_command_that_is_killed_leaves_nothing(on: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    process, named = endless(on, tmp_path / "run"), {"mpi": "mpirun", "torchrun": "torch.distributed.run"}
    os.kill(descendants(process.pid, named.get(on[0], "ray_job.py"))[0], signal.SIGKILL)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1 and "ended without a result" in told
    deadline = time.monotonic() + 60  # Ray waits for half a minute for a client that may come back
    while workers_of(tmp_path / "run"):
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.torch
def test_ctrl_c_cancels_the_job(on: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    process = endless(on, tmp_path / "run")
    process.send_signal(signal.SIGINT)
    assert ended(process, tmp_path / "run")[0] == 130


@pytest.mark.torch
@pytest.mark.slurm
def test_a_job_that_slurm_ends_is_named_and_goes_on(slurm: SlurmBox, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    words = ["run", "torch:ddp", *WORKLOAD, "--steps", "400", "--save-every", "20", "--on", "slurm:nodes=2"]
    process = command(*words, "--out", str(directory), environment=slurm.environment)
    deadline = time.monotonic() + 120
    while not list(directory.glob("checkpoints/step-*/commit.json")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    number = next(directory.glob("slurm-*.log")).stem.partition("-")[2]
    slurm.run("scancel", number)
    code, told = ended(process, directory)
    assert code == 1
    assert f"Slurm's job {number} ended without a result (CANCELLED)" in told
    again = command("run", "--resume", str(directory), "--on", "slurm:nodes=2", environment=slurm.environment)
    code, told = ended(again, directory)
    assert code == 0, told
    result = load_result(directory)
    assert result.parity.passed and result.resumed_at


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.tf
@pytest.mark.slurm
def test_rows_of_a_comparison_are_jobs(slurm: SlurmBox, tmp_path: Path) -> None:
    rows = "torch:ddp,torch:fsdp,tf:multi_worker_mirrored,tf:mirrored,tf:parameter_server,torch:single"
    words = ["compare", "--strategies", rows, "--steps", "8", *WORKLOAD, "--on", "slurm:nodes=2"]
    process = command(*words, "--out", str(tmp_path / "all"), environment=slurm.environment)
    told, said = process.communicate(timeout=280)
    assert process.returncode == 0, said
    assert len(list((tmp_path / "all").rglob("slurm-*.log"))) == 7, "the oracle as well"
    assert told.count("yes") >= 6
    assert "Importing" not in said and "the import of the framework included" in told
    assert "--on slurm:nodes=2" in told, "the line that does it again"

"""A prepared run, started by something else than our launcher: torchrun, or by hand."""

import dataclasses
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.common.files.reading import read_text
from samestep.common.request import launch_of
from samestep.common.run import parse
from samestep.common.runtime.checkpoints.committed import find_folders
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.processes.network import HOST, free_ports
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.runtime.state_file import read_state
from samestep.common.runtime.topology import own_index, tf_cluster
from samestep.common.strategy import ProcessSpec
from samestep.experiments import run
from tests.cells import slow

ROOT = str(Path(__file__).parents[3])
ARGUMENTS = "--workload digits-mlp+width=32 --batch-size 48 --dtype float64 --optimizer adamw --parity"


def prepared(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str, steps: int = 12) -> list[str]:
    """What `--prepare` prints."""
    assert run.main([*ARGUMENTS.split(), *arguments, f"--steps={steps}", "--prepare", "--out", str(path)]) == 0
    assert sorted(file.name for file in path.iterdir()) == ["config.json", "error.json", "written.jsonl"]
    return capsys.readouterr().out.splitlines()


def started(line: str, **more: str) -> subprocess.Popen[str]:
    """A printed line, given to a shell in which `python` and `torchrun` are the present environment's."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"} | more
    return subprocess.Popen(
        line, shell=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(*lines: str) -> list[str]:
    """Runs printed lines side by side, all of which must end well."""
    processes = [started(line) for line in lines]
    try:
        told = [process.communicate(timeout=90) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(lines), told
    return [out + err for out, err in told]


def is_the_same_step(path: Path, devices: int) -> RunResult:
    result = load_result(path)
    assert result.status == "trained"
    assert result.parity.passed, result.parity.reason
    assert result.parity.steps == len(result.losses) == 12
    assert [row.rank for row in result.processes] == list(range(devices))
    assert sorted(file.suffix for file in path.iterdir()) == [".json"] * (devices + 2) + [".jsonl"] * 2, "and no state"
    return result


@pytest.mark.torch
@pytest.mark.parametrize("strategy", ["ddp", *slow("pp", "fsdp", "tp")])
def test_torchrun_starts_a_prepared_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str) -> None:
    path = tmp_path / "a run"
    lines = prepared(capsys, path, "--strategy", strategy, "--devices", "2")
    line = lines[lines.index("torchrun:") + 1].strip()
    assert line == f"torchrun --standalone --nproc-per-node 2 --no-python samestep worker '{path}'"
    (told,) = ended(line)
    assert is_the_same_step(path, 2).attempt == 1
    assert f"torch:{strategy} took the oracle's 12 steps; " in told and f"\nRun: {path}\n" in told


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(300)
def test_torchrun_restarts_a_run_from_its_newest_checkpoint(
    launcher: Launcher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank is killed while it trains: the workers that torchrun starts again go on, and nothing is seen of it in the result."""
    path = tmp_path / "run"
    asked = "--strategy ddp --devices 4 --save-every 20 --keep-state"
    lines = prepared(capsys, path, *asked.split(), steps=400)
    line = lines[lines.index("torchrun:") + 1].strip().replace("--standalone", "--standalone --max-restarts 1")
    with started(line) as torchrun:
        while not find_folders(path) and torchrun.poll() is None:
            time.sleep(0.001)
        os.kill(json.loads(read_text(path / "process-rank-2.json"))["pid"], signal.SIGKILL)
        _, told = torchrun.communicate(timeout=200)
    assert torchrun.returncode == 0, told
    result = load_result(path)
    assert result.attempt == 2 and result.resumed_at is not None and result.resumed_at >= 20
    config = dataclasses.replace(result.config, out=str(tmp_path / "whole"), save_every=None)
    whole = launcher.run(parse(config), launch_of(config))
    assert result.parity.passed, result.parity.reason
    assert (result.losses, result.state_sha256) == (whole.losses, whole.state_sha256) and whole.state_sha256


@pytest.mark.slow
@pytest.mark.torch
def test_a_node_rank_that_two_torchruns_have_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, port = tmp_path / "run", free_ports(1)[0]
    prepared(capsys, path, "--strategy", "ddp", "--devices", "2")
    nodes = (
        f"--nnodes 2 --nproc-per-node 1 --master-addr {HOST} --master-port {port} --no-python samestep worker {path}"
    )
    processes = [started(f"torchrun --node-rank {rank} {nodes}") for rank in (0, 1, 1)]
    try:
        told = [process.communicate(timeout=90)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert sorted(process.returncode for process in processes) == [0, 0, 1], told
    (line,) = [line for each in told for line in each.splitlines() if "started twice" in line]
    assert line == f"samestep: rank-1 was started twice: another process is rank-1 of {path}; start each process once"
    is_the_same_step(path, 2)


@pytest.mark.slow
@pytest.mark.torch
def test_a_prepared_run_is_started_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    lines = prepared(capsys, path, "--strategy", "ddp", "--devices", "2")
    first = next(number for number, line in enumerate(lines) if line.startswith("by hand")) + 1
    by_hand = [line.strip() for line in lines[first:]]
    assert [line.partition(" ")[0] for line in by_hand] == ["RANK='0'", "RANK='1'"]
    port = free_ports(1)[0]
    filled = [line.replace("'HOST'", HOST).replace("'PORT'", str(port)) for line in by_hand]
    ended(*filled)
    result = is_the_same_step(path, 2)
    assert "one process per device" in result.device_note
    again = started(filled[0])  # a finished run is not run again
    _, told = again.communicate(timeout=60)
    assert again.returncode == 2
    assert told == f"samestep: {path} holds a finished run; nothing was overwritten: prepare another directory.\n"
    assert load_result(path) == result


def test_a_run_of_one_process_needs_no_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    lines = prepared(capsys, path, "--framework", "numpy", "--strategy", "oracle", "--keep-state")
    assert "torchrun:" not in lines
    assert lines[-2:] == ["by hand, one line per process:", f"  samestep worker {path}"]
    ended(lines[-1])
    result = load_result(path)
    assert result.status == "trained"
    assert [(host["host"], host["processes"]) for host in result.hosts] == [(platform.node(), "rank-0")]
    assert not list(path.glob("rendezvous*"))
    assert read_state(path).step == 12


def test_a_run_that_is_started_again_by_hand_counts_attempts_by_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    lines = prepared(capsys, path, "--framework", "numpy", "--strategy", "oracle", "--save-every", "5")
    ended(lines[-1])
    (path / "result.json").unlink()
    ended(lines[-1])
    result = load_result(path)
    assert result.resumed_at in (5, 10)
    assert (result.attempt, result.lost_steps) == (2, 12 - result.resumed_at)


@pytest.mark.torch
def test_an_environment_that_is_not_the_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    prepared(capsys, path, "--strategy", "ddp", "--devices", "2")
    line = f"samestep worker {path}"
    three = {"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "3", "MASTER_ADDR": HOST, "MASTER_PORT": "1"}
    cases = [
        (started(line), "RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set"),
        (started(line, **three), "WORLD_SIZE is 3, but the run was prepared for 2 processes"),
        (started(f"{line}-not"), f"{path}-not holds no readable config.json"),
        (started("samestep worker"), "samestep worker needs DIR"),
    ]
    for process, wanted in cases:
        _, told = process.communicate(timeout=60)
        assert process.returncode == 2
        assert told.startswith("samestep: ")
        assert told.count("\n") == 1
        assert wanted in told
    left = json.loads((path / "error.json").read_text())
    assert (left["type"], left["role"]) == ("ConfigError", "worker")
    assert left["message"].startswith(("RANK, ", "WORLD_SIZE is 3"))


RANKS = [ProcessSpec(f"rank-{r}", {"RANK": str(r), "WORLD_SIZE": "2", "MASTER_PORT": "${port0}"}) for r in (0, 1)]
TASKS = tf_cluster({"worker": 2})


@pytest.mark.parametrize(
    ("specs", "environment", "told"),
    [
        (RANKS, {"RANK": "x"}, "RANK is 'x'; give a whole number from 0 to 1."),
        (RANKS, {"RANK": "-1"}, "RANK is '-1'; give a whole number from 0 to 1."),
        (RANKS, {"RANK": "9"}, "RANK is '9'; give a whole number from 0 to 1."),
        (RANKS, {"RANK": "9" * 5000}, "RANK is '9999"),
        (RANKS, {"WORLD_SIZE": "two"}, "WORLD_SIZE is two, but the run was prepared for 2 processes"),
        (RANKS, {"MASTER_PORT": "port"}, "MASTER_PORT is 'port'; give a whole number from 1 to 65535."),
        (RANKS, {"MASTER_PORT": "65536"}, "MASTER_PORT is '65536'; give a whole number from 1 to 65535."),
        (TASKS, {"TF_CONFIG": "{"}, "TF_CONFIG is '{', which is not a task of this run"),
        (TASKS, {"TF_CONFIG": "[]"}, "TF_CONFIG is '[]', which is not a task of this run"),
        (TASKS, {"TF_CONFIG": '{"task": {"type": "ps", "index": 0}}'}, "which is not a task of this run"),
    ],
)
def test_an_environment_that_names_no_process(specs: list[ProcessSpec], environment: dict[str, str], told: str) -> None:
    good = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
    with pytest.raises(ConfigError, match=re.escape(told)) as caught:
        own_index(specs, good | environment)
    assert len(str(caught.value)) < 400

"""Which attempts follow on one another when devices are lost: made-up processes, real checkpoints."""

import dataclasses
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.files.locks import claim_place
from samestep.common.files.writing import open_directory
from samestep.common.program import TrainState
from samestep.common.reference.strategies.oracle import build
from samestep.common.request import Launch, RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.checkpoints.committed import Commit, find_folders, newest
from samestep.common.runtime.checkpoints.saving import Saver
from samestep.common.runtime.checkpoints.writing import write_checkpoint
from samestep.common.runtime.directory import read_error, reserve_error
from samestep.common.runtime.parent.attempts import Attempts, check_unfinished, prepare, recorded_end
from samestep.common.runtime.parent.processes.watch import Progress
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.strategy import Run


@dataclasses.dataclass
class Machine:
    """Starts attempts: with more devices than there are, one fails; otherwise it saves a checkpoint every 10 steps.

    Attributes:
        directory: The run directory.
        devices: How many there are, in each attempt; the last number stays.
        steps: After how many steps the run ends.
        took: The devices of each attempt, and the checkpoints that it saved.
    """

    directory: Path
    devices: list[int]
    steps: int
    step: int = 0
    took: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    def begin(self, run: Run, launch: Launch, progress: Progress | None, environment: dict[str, str]) -> None:
        there = self.devices[min(len(self.took), len(self.devices) - 1)]
        self.took.append((run.num_devices, 0))
        if run.num_devices > there:
            raise WorkerFailed("rank-3 was killed by SIGKILL")
        while self.step < self.steps:
            self.step += 10
            state = TrainState(self.step, {"w": np.ones(1)}, {})
            write_checkpoint(self.directory, state, Commit(self.step, 0, len(self.took), "program", "losses"))
            self.took[-1] = (run.num_devices, self.took[-1][1] + 1)
            if progress is not None:
                progress(self.step, [], 0.0)


def attempts(tmp_path: Path, devices: list[int], steps: int) -> list[tuple[int, int]]:
    asked = RunConfig(workload="digits-mlp", batch_size=64, steps=steps, save_every="10", restarts=9, elastic="1:4")
    config = Cell.parse("torch:ddp").apply_to(dataclasses.replace(asked, out=str(tmp_path / "run")))
    run, launch = parse(config), launch_of(config)
    machine = Machine(prepare(run, launch), devices, steps)
    Attempts(machine.directory, run, launch, {}).take(0.0, machine.begin)
    return machine.took


@pytest.mark.torch
def test_a_device_that_has_gone_for_good_is_asked_for_ever_more_rarely(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    took = attempts(tmp_path, [3], 200)  # 3 do not divide the batch
    assert took == [(4, 0), (2, 1), (4, 0), (2, 2), (4, 0), (2, 4), (4, 0), (2, 8), (4, 0), (2, 5)]
    told = re.findall(r"starts again, on (2 of 4 devices; all are tried again after .*) \(", capsys.readouterr().err)
    after = ["a checkpoint", "2 checkpoints", "4 checkpoints", "8 checkpoints", "16 checkpoints"]
    assert told == [f"2 of 4 devices; all are tried again after {each}" for each in after]


@pytest.mark.torch
def test_a_device_that_has_come_back_is_asked_for_at_once_when_it_is_lost_again(tmp_path: Path) -> None:
    assert attempts(tmp_path, [2, 2, 2, 4], 60) == [(4, 0), (2, 1), (4, 0), (2, 2), (4, 3)]


@pytest.mark.torch
def test_what_fails_with_fewer_devices_goes_on_with_fewer_still(tmp_path: Path) -> None:
    assert attempts(tmp_path, [3, 1, 1, 4], 60) == [(4, 0), (2, 0), (1, 1), (4, 5)]


def test_two_commands_do_not_take_one_run(tmp_path: Path) -> None:
    """The lock is that of a worker of the first command."""
    config = RunConfig("numpy", "oracle", dtype="float64", steps=20, out=str(tmp_path / "run"))
    directory = prepare(parse(config), launch_of(config))
    assert check_unfinished(directory) == directory
    with (directory / "config.json").open("r+b") as file:
        claim_place(file.fileno(), 0)
        with pytest.raises(ConfigError, match=f"still there; wait for its end, or end it with: kill -9 {os.getpid()}$"):
            check_unfinished(directory)
    assert check_unfinished(directory) == directory


def test_a_clock_that_jumps_changes_no_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints are sorted by their steps; when they were written, nobody asks."""
    open_directory(tmp_path)
    for step, now in ((10, 2e9), (20, 1e9), (30, 0.0)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        state = TrainState(step, {"w": np.ones(1)}, {})
        path = write_checkpoint(tmp_path, state, Commit(step, 0, 1, "program", "losses")).path
        os.utime(path, (now, now))
    found, _ = newest(tmp_path, "program")
    assert found is not None and found.commit.step == 30


def test_an_interval_in_seconds_is_no_time_of_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day forward, and nothing is due; then ten seconds of the clock that does not jump."""
    config = RunConfig("numpy", "oracle", "synthetic-mlp+width=8", dtype="float64", steps=20, save_every="9s")
    run, launch = parse(config), launch_of(dataclasses.replace(config, out=str(tmp_path)))
    open_directory(tmp_path)
    program = build(run)
    with Saver(ProcessFile(tmp_path, "rank-0", 0), Commit(20, 0, 1, "program", ""), run, launch, ()) as saver:
        (tmp_path / "metrics.jsonl").touch()
        monkeypatch.setattr(time, "time", lambda: 1e10)
        saver.offer(program, 5, [1.0])
        assert find_folders(tmp_path) == []
        later = time.monotonic() + 10
        monkeypatch.setattr(time, "monotonic", lambda: later)
        saver.offer(program, 6, [1.0])
    assert [each.name for each in find_folders(tmp_path)] == ["step-000006"]


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (KeyboardInterrupt(), "was interrupted"),
        (KeyboardInterrupt("SIGTERM"), "was interrupted by SIGTERM"),
        (WorkerFailed("rank-1 died"), "rank-1 died"),
        (ZeroDivisionError("a defect"), "ZeroDivisionError: a defect"),
    ],
    ids=["Ctrl-C", "SIGTERM", "ours", "a defect"],
)
def test_what_ends_a_run_is_written_into_its_directory(tmp_path: Path, ends: BaseException, said: str) -> None:
    open_directory(tmp_path / "run")
    reserve_error(tmp_path / "run")
    with pytest.raises(type(ends)), recorded_end(tmp_path / "run"):
        raise ends
    role, error = read_error(tmp_path / "run") or ("", None)
    assert role == "parent" and str(error).endswith(said)

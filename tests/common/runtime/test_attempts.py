"""Which attempts follow on one another when devices are lost: made-up processes, real checkpoints."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from samestep.common.cell import Cell
from samestep.common.errors import WorkerFailed
from samestep.common.program import TrainState
from samestep.common.request import Launch, RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.checkpoints.committed import Commit
from samestep.common.runtime.checkpoints.writing import write_checkpoint
from samestep.common.runtime.parent.attempts import Attempts
from samestep.common.runtime.parent.prepare import prepare
from samestep.common.runtime.parent.processes.watch import Progress
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

    def begin(
        self, run: Run, launch: Launch, progress: Progress | None, launched_at: float, environment: dict[str, str]
    ) -> None:
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

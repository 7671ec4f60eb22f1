"""Measures what is lost when runs are killed at random moments, a third of them while a checkpoint is being written.

`python -m benchmarks.resuming.kills [CELL ...] [--kills N] [--seed S]` kills one process of a run, which then restarts
automatically, or every eighth time the command, whose run is then resumed. Each run is compared with an undisturbed one. Printed
are checkpoints that cannot be read or contain another step than they claim, runs that ended in different bits, processes that
outlived their run, the numbers of steps that were repeated and in how many runs, and the time from the kill of a process to the
first step of the next attempt.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.intervals import median_interval
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.checkpoints.committed import FOLDER, Checkpoint, find_checkpoints
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.steps.log import METRICS, read_log
from tests.processes import all_end, descendants

CELLS = ("torch:ddp", "torch:fsdp", "tf:mirrored")
ASKED = {"workload": "digits-mlp+width=512", "devices": 2, "optimizer": "adamw", "batch_size": 48, "steps": 100}
EVERY = 10
"""The steps between checkpoints; on an idle machine, writing one takes about as long."""
POLL, PATIENCE = 0.001, 20.0
COMMAND = 8
"""One run in this many loses its command and not a process, because it then has to import everything again."""


@dataclasses.dataclass
class Found:
    """The outcomes of the runs of one cell."""

    struck: int = 0
    in_a_save: int = 0
    unreadable: int = 0
    mixed: int = 0
    other_bits: int = 0
    left: int = 0
    seconds: list[float] = dataclasses.field(default_factory=list)
    again: list[int] = dataclasses.field(default_factory=list)

    def add(self, directory: Path, result: RunResult, whole: RunResult) -> None:
        """Adds a run that has ended."""
        for each in find_checkpoints(directory):
            self.unreadable += not isinstance(each, Checkpoint)
            self.mixed += isinstance(each, Checkpoint) and each.state().step != each.commit.step
        self.other_bits += (result.losses, result.state_sha256) != (whole.losses, whole.state_sha256)
        self.again.append(result.lost_steps)


class Kill(threading.Thread):
    """Kills a process with SIGKILL some time after a run's first step, optionally not before it writes a checkpoint."""

    def __init__(self, directory: Path, seconds: float, is_in_a_save: bool, choose: Callable[[], int]) -> None:
        super().__init__()
        self._directory, self._seconds, self.is_in_a_save, self._choose = directory, seconds, is_in_a_save, choose
        self.at, self.again, self.pids = 0.0, 0.0, set[int]()

    def run(self) -> None:
        """Waits for the moment and kills; then waits for the first step of the next attempt."""
        if not self._wait(lambda: os.path.exists(self._directory / METRICS)):
            return
        time.sleep(self._seconds)
        if self.is_in_a_save and not self._wait(lambda: any((self._directory / FOLDER).glob("*.part"))):
            return
        with contextlib.suppress(
            OSError, ValueError, KeyError, IndexError
        ):  # the process has just ended, or its file is being written
            pid = self._choose()
            self.pids = descendants(pid) | {pid}
            os.kill(pid, signal.SIGKILL)
            self.at = time.monotonic()
        if self.at and self._wait(self._is_at_it_again):
            self.again = time.monotonic()

    def _is_at_it_again(self) -> bool:
        with contextlib.suppress(ConfigError):
            return any(window.attempt > 1 for window in read_log(self._directory).windows)
        return False

    def _wait(self, is_there: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + PATIENCE
        while not (found := is_there()) and time.monotonic() < deadline and not self._is_over():
            time.sleep(POLL)
        return found

    def _is_over(self) -> bool:
        return os.path.exists(self._directory / "result.json")


def taken(launcher: Launcher, cell: str, directory: Path, resume: bool = False, **more: object) -> RunResult:
    """Takes a run to its end, and returns its result."""
    config = Cell.parse(cell).apply_to(RunConfig(out=str(directory), keep_state=True, parity=False, **ASKED, **more))
    return launcher.run(parse(config), launch_of(config), resume=directory if resume else None)


def strike_worker(
    launcher: Launcher, cell: str, directory: Path, moment: tuple[float, bool], draw: random.Random
) -> Kill:
    """Kills a process of a run, which then restarts."""

    def choose() -> int:
        return int(json.loads(draw.choice(sorted(directory.glob("process-*.json"))).read_text())["pid"])

    kill = Kill(directory, *moment, choose)
    kill.start()
    taken(launcher, cell, directory, save_every=str(EVERY), restarts=1)
    kill.join()
    return kill


def strike_command(launcher: Launcher, cell: str, directory: Path, moment: tuple[float, bool]) -> Kill:
    """Kills the command itself, and resumes its run."""
    words = [word for name, value in ASKED.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    line = [sys.executable, "-m", "samestep", "run", cell, *words, "--no-parity", "--keep-state"]
    line += ["--save-every", str(EVERY), "--restarts", "1", "--out", str(directory)]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        kill = Kill(directory, *moment, lambda: command.pid)
        kill.start()
        command.wait()
    all_end(kill.pids, PATIENCE)
    if not os.path.exists(directory / "result.json"):
        taken(launcher, cell, directory, resume=True, save_every=str(EVERY), restarts=1)
    kill.join()
    return kill


def struck(launcher: Launcher, cell: str, count: int, seed: int, below: Path) -> Found:
    """Kills as many runs of a cell as requested, and returns the outcomes."""
    found, draw = Found(), random.Random(f"{seed} {cell}")
    whole, number = taken(launcher, cell, below / "whole", save_every=str(EVERY)), 0
    seconds = read_log(below / "whole").seconds
    while found.struck < count:
        directory, number = below / str(number), number + 1
        moment = (draw.uniform(0, seconds), number % 3 == 0)
        is_command = number % COMMAND == 0
        kill = (
            strike_command(launcher, cell, directory, moment)
            if is_command
            else strike_worker(launcher, cell, directory, moment, draw)
        )
        if kill.at:
            found.struck, found.in_a_save = found.struck + 1, found.in_a_save + kill.is_in_a_save
            found.left += len(all_end(kill.pids, 5.0))
            found.seconds += [kill.again - kill.at] if kill.again and not is_command else []
        found.add(directory, load_result(directory), whole)
    return found


def main() -> None:
    """Prints a line for each cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counted = "kills | in a save | unreadable | mixed | other bits | processes left | steps again"
    print(f"| cell | {counted} | to the next step, s |\n|---|---|---|---|---|---|---|---|---|", flush=True)
    with Launcher() as launcher, tempfile.TemporaryDirectory() as below:
        for cell in given.cells:
            found = struck(launcher, cell, given.kills, given.seed, Path(below, cell.replace(":", "-")))
            median, low, high = median_interval(found.seconds)
            *counts, _, again = dataclasses.astuple(found)
            told = ", ".join(f"{steps} in {number}" for steps, number in sorted(collections.Counter(again).items()))
            times = f"{median:.2f} ({low:.2f} to {high:.2f})"
            print(f"| `{cell}` | {' | '.join(map(str, counts))} | {told} | {times} |", flush=True)


if __name__ == "__main__":
    main()

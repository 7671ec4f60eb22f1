"""Measures what checkpoints cost: waiting for a save, reading one, and the useful share of a run whose processes are killed.

`python -m benchmarks.resuming.checkpointing [CELL ...]` prints two tables.

* For each save, the seconds in which training waits, and its processor time divided by that of a copy in memory of what the
  process saves, taken right afterwards; this ratio also holds on a busy machine. For each restore, the processor seconds and all
  seconds of reading a checkpoint with its digests, and of restoring it. They should be at most twice a copy, 1 % of a run that
  saves every 50 steps, and 1 s for 100 MB.
* For a run that restarts automatically and one of whose processes is killed every 20 s, the seconds of steps that count divided
  by all seconds from its first step to its end. It should be at least 0.9.
"""

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.intervals import median_interval
from benchmarks.resuming.timed_worker import TIMED
from samestep.common.cell import Cell
from samestep.common.errors import percent
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.checkpoints.committed import find_folders
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.steps.log import read_log

CELLS = ("torch:ddp", "torch:fsdp", "tf:mirrored")
ASKED = {"workload": "digits-mlp+width=2048", "devices": 2, "optimizer": "adamw", "batch_size": 32, "parity": False}
"""The request of the runs; 8.6 million parameters have a state of 103 MB."""
SAVES, EVERY, KEPT = 6, 5, 50
KILL_SECONDS, GOODPUT_SECONDS = 20.0, 110.0


def take(launcher: Launcher, cell: str, directory: Path, timed: Path, **more: object) -> RunResult:
    """Takes a run, or resumes it if its directory exists.

    Args:
        launcher: The launcher that starts the run.
        cell: The cell.
        directory: The directory of the run.
        timed: The file to which its processes write their times.
        **more: Further fields of the request.
    """
    config = Cell.parse(cell).apply_to(RunConfig(out=str(directory), **{**ASKED, **more}))
    environment = {TIMED: str(timed)}
    return launcher.run(
        parse(config), launch_of(config), environment=environment, resume=directory if directory.exists() else None
    )


def time_saves(launcher: Launcher, cell: str, below: Path) -> str:
    """Saves a few times, then resumes from the newest checkpoint; returns a line of the table.

    Args:
        launcher: A launcher with the worker `benchmarks.resuming.timed_worker`.
        cell: The cell.
        below: An empty folder.
    """
    run, timed, steps = below / "run", below / "timed.jsonl", EVERY * SAVES + 1
    result = take(launcher, cell, run, timed, steps=steps, save_every=str(EVERY))
    (run / "result.json").unlink()
    take(launcher, cell, run, timed, steps=steps, save_every=str(EVERY))
    found = [json.loads(line) for line in timed.read_text().splitlines()]
    saves = [each for each in found if each["kind"] == "save"]
    reads = [each for each in found if each["kind"] == "read" and each["bytes"]]
    restores = [each for each in found if each["kind"] == "restore" and each["seconds"]]
    stall = statistics.median(each["stall"] for each in saves)
    assert result.step_seconds_median is not None
    share = stall / (KEPT * result.step_seconds_median)
    ratio, low, high = median_interval([each["busy"] / each["copy"] for each in saves])
    size = statistics.median(each["bytes"] for each in saves) / 1e6
    times = f"{stall:.3f} | {ratio:.2f} ({low:.2f} to {high:.2f}) | {percent(share, 2)}"
    return f"| `{cell}` | {size:.0f} | {times} | {_spell(reads)} | {_spell(restores)} |"


def _spell(timed: Sequence[Mapping[str, float]]) -> str:
    """Returns processor seconds and seconds as text."""
    return " of ".join(f"{statistics.median(each[kind] for each in timed):.2f}" for kind in ("busy", "seconds"))


def time_kills(launcher: Launcher, cell: str, below: Path, seconds: float) -> str:
    """Takes a run one of whose processes is killed regularly; returns a line of the table.

    Args:
        launcher: The launcher that starts the run.
        cell: The cell.
        below: An empty folder.
        seconds: The seconds that the run would take without being killed.
    """
    small = {"workload": "digits-mlp+width=512"}
    with Launcher() as usual:
        trial = take(usual, cell, below / "trial", below / "timed.jsonl", steps=101, **small)
        assert trial.step_seconds_median is not None
        steps, draw, run = int(seconds / trial.step_seconds_median), random.Random(cell), below / "run"
        kills: list[float] = []
        began: list[float] = []

        def kill(step: int, losses: list[float], spent: float) -> None:
            now = time.monotonic()
            began.append(now)
            if now - (kills or began)[-1 if kills else 0] > KILL_SECONDS and find_folders(run):
                pid = json.loads(draw.choice(sorted(run.glob("process-*.json"))).read_text())["pid"]
                kills.append(now)
                os.kill(pid, signal.SIGKILL)

        config = Cell.parse(cell).apply_to(
            RunConfig(out=str(run), steps=steps, save_every="1s", restarts=99, **{**ASKED, **small})
        )
        result = usual.run(parse(config), launch_of(config), kill)
        whole = time.monotonic() - began[0]
    log = read_log(run)
    goodput = (log.seconds - log.windows[0].seconds) / whole
    return f"| `{cell}` | {len(kills)} | {whole:.0f} | {goodput:.3f} | {result.lost_steps} of {steps} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints both tables, each line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--seconds", type=float, default=GOODPUT_SECONDS, help="of a run that is killed; 0 takes none")
    given = parser.parse_args(arguments)
    print("| Row | MB a process | Stall, s | By a copy | Of 50 steps | Read, s | Restore, s |", flush=True)
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with Launcher("benchmarks.resuming.timed_worker") as launcher:
        for cell in given.cells:
            with tempfile.TemporaryDirectory() as below:
                print(time_saves(launcher, cell, Path(below)), flush=True)
    if given.seconds:
        print("\n| Row | Kills | Seconds | Goodput | Steps again |\n| --- | --- | --- | --- | --- |", flush=True)
        for cell in given.cells:
            with tempfile.TemporaryDirectory() as below:
                print(time_kills(launcher, cell, Path(below), given.seconds), flush=True)


if __name__ == "__main__":
    main()

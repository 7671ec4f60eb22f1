"""Measures how much the memory of a run grows per step, which should be nothing but the losses themselves.

`python -m benchmarks.cost.memory [torch:ddp ...]` trains every row, or the given ones, for 30,000 steps on two devices. Once a
second it reads the memory of each process of the run (VmRSS). It prints a row per process: the memory, and its slope in bytes
per step with the 95 % interval. The first quarter of a run does not count, since frameworks and allocators
fill their caches in it. The rest is cut into ten parts of equal length. The slope is the mean difference per step between the
medians of successive parts, and the interval is Student's for these differences.

The process that has the losses keeps 8 bytes of them per step. A process that grows by more than 100 bytes per step in addition
is marked, if its interval excludes zero.

Runs are written to a file as soon as they are done, and none is repeated unless it failed. A call continues where the previous
one stopped, and starts no run after `--minutes`. The table contains all runs in the file.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from samestep.common.catalog import cells, strategy_info
from samestep.common.cell import Cell
from samestep.common.errors import SamestepError
from samestep.common.judging.statistics import mean_interval
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments.printing.text import github

WORKLOAD = "digits-mlp+width=32"
LOSS_BYTES, MOST_BYTES = 8, 100
"""The bytes of a step's loss, and the bytes per step by which a process may grow in addition."""
PARTS = 10
MEBIBYTE = 2**20
HEADER = ["row", "process", "MiB after a quarter", "MiB at the end", "bytes a step [95 %]", ""]


@dataclasses.dataclass(frozen=True)
class Sample:
    """The memory of a process at some step.

    Attributes:
        role: The role of the process.
        step: The number of steps that rank 0 had taken.
        rss_bytes: The resident memory of the process.
    """

    role: str
    step: int
    rss_bytes: int


@dataclasses.dataclass(frozen=True)
class Taken:
    """A finished run.

    Attributes:
        cell: The row.
        steps: The requested number of steps.
        seed: The seed of weights and batches.
        samples: The samples taken while it trained.
        error: Why there are no samples; "" if there are.
    """

    cell: str
    steps: int
    seed: int
    samples: tuple[Sample, ...] = ()
    error: str = ""


def main() -> None:
    """Takes the runs that are missing, then prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost.memory", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("cells", nargs="*", default=every_row())
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", type=Path, default=Path("runs/memory.jsonl"))
    parser.add_argument("--minutes", type=float, default=float("inf"))
    asked = parser.parse_args()
    asked.store.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * asked.minutes
    with asked.store.open("a", buffering=1) as file:
        known = {(run.cell, run.steps, run.seed) for run in read(asked.store) if not run.error}
        for cell in asked.cells:
            if (cell, asked.steps, asked.seed) not in known and time.monotonic() < until:
                file.write(json.dumps(dataclasses.asdict(take(cell, asked.steps, asked.seed))) + "\n")
    latest = {(run.cell, run.steps, run.seed): run for run in read(asked.store) if run.cell in asked.cells}
    print(table([*latest.values()]))


def every_row() -> list[str]:
    """Returns all rows of all frameworks."""
    return cells()


def read(store: Path) -> list[Taken]:
    """Returns the runs in the file."""
    lines = map(json.loads, store.read_text().splitlines()) if store.exists() else []
    return [Taken(**{**line, "samples": tuple(Sample(**each) for each in line["samples"])}) for line in lines]


def take(cell: str, steps: int, seed: int) -> Taken:
    """Trains a row and watches its memory.

    Args:
        cell: The row.
        steps: The number of steps.
        seed: The seed of weights and batches.
    """
    asked = Cell.parse(cell).apply_to(RunConfig(workload=WORKLOAD, batch_size=48, steps=steps, seed=seed, parity=False))
    dtype = "float64" if asked.framework == "numpy" else "float32"
    devices = None if asked.mesh else 2 if strategy_info(asked.framework, asked.strategy).axes else 1
    with tempfile.TemporaryDirectory() as scratch, Launcher() as launcher:
        out = Path(scratch) / "run"
        asked = dataclasses.replace(asked, dtype=dtype, devices=devices, out=str(out))
        try:
            with watching(out) as samples:
                launcher.run(parse(asked), launch_of(asked))
        except SamestepError as error:
            return Taken(cell, steps, seed, error=str(error))
    return Taken(cell, steps, seed, tuple(samples))


@contextlib.contextmanager
def watching(directory: Path, seconds: float = 1.0) -> Iterator[list[Sample]]:
    """Makes a context in which the memory of the processes of a run is sampled.

    Args:
        directory: The directory of the run.
        seconds: The time between two samples.
    """
    samples: list[Sample] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            samples.extend(_now(directory))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield samples
    finally:
        over.set()
        watcher.join()


def _now(directory: Path) -> list[Sample]:
    """Returns a sample of every process; none unless rank 0 is training."""
    lives = {}
    for path in directory.glob("process-*.json"):
        with contextlib.suppress(OSError, ValueError):  # half written
            life = json.loads(path.read_text())
            lives[life["role"]] = life
    ranks = [life for life in lives.values() if life["phase"] == "train" and life["rank"] == 0]
    found = []
    for role, life in lives.items() if ranks else ():
        with contextlib.suppress(OSError, KeyError):  # it has ended
            pages = int(Path(f"/proc/{life['pid']}/statm").read_text().split()[1])
            found.append(Sample(role, max(each["step"] for each in ranks), pages * os.sysconf("SC_PAGE_SIZE")))
    return found


def slope(samples: Sequence[Sample], steps: int) -> tuple[float, float, float]:
    """Returns the bytes per step by which a process grows, with the 95 % interval.

    Args:
        samples: The samples of one process.
        steps: The steps of its run.

    Raises:
        ValueError: There are too few samples.
    """
    start, length = steps / 4, steps * 3 / 4 / PARTS
    parts: dict[int, list[int]] = {}
    for sample in samples:
        if sample.step >= start:
            parts.setdefault(min(PARTS - 1, int((sample.step - start) / length)), []).append(sample.rss_bytes)
    middles = sorted((number, statistics.median(each)) for number, each in parts.items())
    pairs = itertools.pairwise(middles)
    return mean_interval([(after - before) / (later - number) / length for (number, before), (later, after) in pairs])


def table(runs: Sequence[Taken]) -> str:
    """Returns a table with a row per process of each run."""
    rows = [row for run in runs for row in _rows(run)]
    return github(HEADER, rows)


def _rows(run: Taken) -> Iterator[list[str]]:
    if run.error:
        yield [run.cell, "", "", "", "", run.error]
    for role in dict.fromkeys(sample.role for sample in run.samples):
        own = [sample for sample in run.samples if sample.role == role and sample.step >= run.steps / 4]
        try:
            mean, low, high = slope(own, run.steps)
        except ValueError:
            yield [run.cell, role, "", "", "", "too few readings; take more --steps"]
            continue
        first, last = (f"{each.rss_bytes / MEBIBYTE:.1f}" for each in (own[0], own[-1]))
        verdict = "GROWS" if mean > MOST_BYTES + LOSS_BYTES and low > 0 else ""
        yield [run.cell, role, first, last, f"{mean:,.0f} [{low:,.0f} .. {high:,.0f}]", verdict]


if __name__ == "__main__":
    main()

"""Checks whether the verdicts of `samestep compare --repeats` on speeds are the same when they are repeated.

`python -m benchmarks.measuring.protocol [torch:ddp ...]` takes 20 comparisons of all rows, or of the given ones, with five rounds
each, and 100 comparisons of a row with itself, alternating between rows. Every run is short and has its own processes, and every
comparison has its own launcher. It prints

1. how often the median speed of a later comparison lay in the interval of an earlier one (it should be 91 to 98 %), and how
   wide the interval is; "drift" is how much more the medians scatter than their rounds explain: far above 1, the machine
   changed from comparison to comparison, which no single comparison can see;
2. how often a row was called different from itself (it should be at most 10 of 100);
3. how often the difference that "not separated" names was found when it was injected by scaling the measured times of one
   side, in the row's next comparison with itself and in the same comparison (it should be at least 83 of 100).

Runs are written to a file as soon as they are done, and none is repeated. A call continues where the previous one stopped, and
ends after `--minutes`. The tables contain all runs in the file. Nothing else should run on the machine; it takes more than an
hour.
"""

import argparse
import dataclasses
import json
import math
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from samestep.common.catalog import catalogue, strategy_info
from samestep.common.cell import Cell
from samestep.common.errors import SamestepError, percent
from samestep.common.judging.speed_comparison import FASTER, LEAST_ROUNDS, NOT_SEPARATED, Difference, compare_speeds
from samestep.common.judging.statistics import prediction_interval
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments.printing.text import github

WORKLOAD, STEPS = "digits-mlp", 101
REPEATED, ITSELF = "repeated", "itself"


@dataclasses.dataclass(frozen=True)
class Key:
    """The place of one run in the protocol.

    Attributes:
        part: "repeated", or "itself" for a comparison of a row with itself.
        comparison: The number of the comparison.
        round: The round of the comparison.
        cell: The row.
        side: 0, or 1 for the second run of a row in a round.
    """

    part: str
    comparison: int
    round: int
    cell: str
    side: int = 0


Speeds = dict[Key, float | None]
"""Run -> its examples per second; None if it failed."""


def main() -> None:
    """Measures what is missing, then prints the three tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measuring.protocol", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("cells", nargs="*", default=[f"{f}:{row.name}" for f, row in catalogue() if f != "numpy"])
    parser.add_argument("--store", type=Path, default=Path("runs/protocol.jsonl"))
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--comparisons", type=int, default=20)
    parser.add_argument("--itself", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    if asked.rounds < LEAST_ROUNDS:
        parser.error(f"--rounds {asked.rounds} gives no verdict; the least is {LEAST_ROUNDS}.")
    keys = list(plan(asked.cells, asked.comparisons, asked.itself, asked.rounds))
    asked.store.parent.mkdir(parents=True, exist_ok=True)
    measure(keys, asked.store, time.monotonic() + 60 * asked.minutes)
    known = read(asked.store)
    speeds = {key: known[key] for key in keys if key in known}
    print(f"{len(speeds)} of {len(keys)} runs are done, {sum(s is None for s in speeds.values())} of them failed\n")
    print(intervals(speeds, asked.rounds), verdicts(speeds, asked.rounds), sep="\n\n")


def plan(cells: Sequence[str], comparisons: int, itself: int, rounds: int) -> Iterator[Key]:
    """Yields every run in order; the comparisons of rows with themselves are spread between the others.

    Args:
        cells: The rows.
        comparisons: The number of comparisons of all rows.
        itself: The number of comparisons of a row with itself; the rows alternate.
        rounds: The number of rounds in each comparison.
    """
    for number in range(comparisons):
        yield from (Key(REPEATED, number, r, cell) for r in range(rounds) for cell in cells)
        for other in range(itself * number // comparisons, itself * (number + 1) // comparisons):
            yield from (
                Key(ITSELF, other, r, cells[other % len(cells)], side) for r in range(rounds) for side in (0, 1)
            )


def read(store: Path) -> Speeds:
    """Returns what has been measured."""
    lines = map(json.loads, store.read_text().splitlines()) if store.exists() else []
    return {Key(**line["run"]): line["examples_per_second"] for line in lines}


def measure(keys: Iterable[Key], store: Path, until: float) -> None:
    """Takes the runs that are missing, one after the other; every comparison starts with a new launcher.

    Args:
        keys: All runs, in order.
        store: The file in which they are kept.
        until: The time on the monotonic clock after which no run starts.
    """
    known = read(store)
    left = [key for key in keys if key not in known]
    comparisons = dict.fromkeys((key.part, key.comparison) for key in left)
    for comparison in comparisons:
        with Launcher() as launcher, store.open("a", buffering=1) as file:
            own = [key for key in left if (key.part, key.comparison) == comparison]
            launcher.warm(dict.fromkeys(Cell.parse(key.cell).framework for key in own))
            for key in own:
                if time.monotonic() > until:
                    return
                line = {"run": dataclasses.asdict(key), "examples_per_second": _speed(key.cell, launcher)}
                file.write(json.dumps(line) + "\n")


def _speed(cell: str, launcher: Launcher) -> float | None:
    config = Cell.parse(cell).apply_to(RunConfig(workload=WORKLOAD, steps=STEPS, parity=False))
    devices = None if config.mesh else 2 if strategy_info(config.framework, config.strategy).axes else 1
    config = dataclasses.replace(config, devices=devices)
    try:
        result = launcher.run(parse(config), launch_of(config))
    except SamestepError as error:
        print(f"{cell}: {error}", flush=True)
        return None
    return result.examples_per_second.median if result.examples_per_second else None


def _comparisons(speeds: Speeds, part: str, rounds: int) -> dict[str, list[list[list[float]]]]:
    """Returns cell -> its complete comparisons in order, each with the speeds of all rounds for each side."""
    sides = (0,) if part == REPEATED else (0, 1)
    found: dict[str, list[list[list[float]]]] = {}
    for cell, number in dict.fromkeys((key.cell, key.comparison) for key in speeds if key.part == part):
        whole = [[speeds.get(Key(part, number, r, cell, side)) for r in range(rounds)] for side in sides]
        if all(speed is not None for row in whole for speed in row):
            found.setdefault(cell, []).append([[speed or 0.0 for speed in row] for row in whole])
    return found


def intervals(speeds: Speeds, rounds: int) -> str:
    """Returns a table of how often each row's interval contained the median of a later comparison, and of its width.

    Args:
        speeds: The measured speeds.
        rounds: The number of rounds in a comparison.
    """
    rows: list[list[str]] = []
    every: list[bool] = []
    widths: list[float] = []
    for cell, comparisons in _comparisons(speeds, REPEATED, rounds).items():
        logs = [[math.log(speed) for speed in row] for (row,) in comparisons]
        own = [prediction_interval(each) for each in logs]
        held = [low <= later[0] <= high for i, (_, low, high) in enumerate(own) for later in own[i + 1 :]]
        widths.append(statistics.median(math.exp(high - low) - 1 for _, low, high in own))
        rows.append([cell, str(len(own)), *_share(held), percent(widths[-1], 1), _drift(logs)])
        every += held
    rows.append(["all", "", *_share(every), percent(statistics.median(widths), 1) if widths else "", ""])
    return github(["row", "comparisons", "later medians", "in the interval", "median width", "drift"], rows)


def _drift(comparisons: Sequence[Sequence[float]]) -> str:
    """Returns how much more the medians of comparisons scatter than their rounds explain; 1 on a machine that does not change."""
    if len(comparisons) < 2:
        return ""
    variance = statistics.fmean(statistics.variance(each) for each in comparisons) * math.pi / 2 / len(comparisons[0])
    return f"{statistics.stdev(map(statistics.median, comparisons)) / math.sqrt(variance):.1f}"


def _share(outcomes: Sequence[bool]) -> tuple[str, str]:
    return str(len(outcomes)), percent(sum(outcomes) / len(outcomes), 1) if outcomes else ""


def verdicts(speeds: Speeds, rounds: int) -> str:
    """Returns a table of how often a row differed from itself, and how often the named difference was found.

    Args:
        speeds: The measured speeds.
        rounds: The number of rounds in a comparison.
    """
    different: list[bool] = []
    later: list[bool] = []
    same: list[bool] = []
    for comparisons in _comparisons(speeds, ITSELF, rounds).values():
        for i, pair in enumerate(comparisons):
            found = _compare(pair)
            different.append(found.verdict != NOT_SEPARATED)
            if found.detectable is not None:
                same.append(_finds(pair, found.detectable))
            if found.detectable is not None and comparisons[1:]:
                later.append(_finds(comparisons[(i + 1) % len(comparisons)], found.detectable))
    names = [
        "a row called different from itself",
        "the named difference found in the next comparison",
        "in the same one",
    ]
    rows = [[name, *_share(each)] for name, each in zip(names, (different, later, same), strict=True)]
    return github(["", "comparisons", "share"], rows)


def _compare(pair: Sequence[Sequence[float]], factor: float = 1.0) -> Difference:
    """Returns the difference between the first side, whose speeds are multiplied by a factor, and the second side."""
    return compare_speeds({"": ([factor * speed for speed in pair[0]], pair[1])})[""]


def _finds(pair: Sequence[Sequence[float]], factor: float) -> bool:
    return _compare(pair, factor).verdict == FASTER


if __name__ == "__main__":
    main()

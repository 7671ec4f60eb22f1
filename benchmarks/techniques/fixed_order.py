"""Measures what a fixed order costs: a row with `--fixed-order M` against the same row without.

`python -m benchmarks.techniques.fixed_order [torch:ddp ...]` prints a row per strategy and number of devices: the ratio with to
without of the seconds of a step, and of the processor time of all processes. They are medians over alternating pairs of runs,
with a 95 % interval, and should be at most 1.35. If the cores have other work, look at the processor time.
"""

import argparse
from collections.abc import Sequence

from benchmarks.intervals import median_interval
from samestep.common.cell import Cell
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult

ROWS = ("torch:c10d", "torch:ddp", "torch:zero1", "torch:zero2", "tf:mirrored", "tf:multi_worker_mirrored")
WORKLOAD, STEPS, PAIRS, LEAVES, DEVICES = "prose-gpt", 41, 7, 4, (1, 2, 4)
HEADINGS = ("row", "devices", "seconds of a step", "95 %", "processor time", "95 %")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every row on every number of devices, and prints each result as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=ROWS)
    parser.add_argument("--devices", type=int, nargs="+", default=DEVICES)
    parser.add_argument("--fixed-order", type=int, default=LEAVES)
    parser.add_argument("--workload", default=WORKLOAD)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    given = parser.parse_args(arguments)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    with Launcher() as launcher:
        for row in given.rows:
            for devices in given.devices:
                asked = RunConfig(workload=given.workload, steps=STEPS, devices=devices, parity=False)
                cells = [Cell.parse(each).apply_to(asked) for each in (row, f"{row}+fixed_order={given.fixed_order}")]
                found = ratios(launcher, cells, given.pairs)
                print(f"| {row} | {devices} | {' | '.join(map(_spell, found))} |", flush=True)


def ratios(launcher: Launcher, cells: Sequence[RunConfig], num_pairs: int) -> tuple[list[float], list[float]]:
    """Runs two cells alternately; returns the ratios of second to first for the seconds of a step and for processor time.

    Args:
        launcher: The launcher that starts the runs.
        cells: The requests without and with the technique.
        num_pairs: The number of pairs.
    """
    seconds, processor = [], []
    for number in range(num_pairs):
        order = (0, 1) if number % 2 else (1, 0)
        taken = {place: _take(launcher, cells[place]) for place in order}
        seconds.append(_seconds(taken[1]) / _seconds(taken[0]))
        processor.append(_processor(taken[1]) / _processor(taken[0]))
    return seconds, processor


def _take(launcher: Launcher, cell: RunConfig) -> RunResult:
    return launcher.run_apart(parse(cell), launch_of(cell))


def _seconds(result: RunResult) -> float:
    assert result.step_seconds_median is not None
    return result.step_seconds_median


def _processor(result: RunResult) -> float:
    return sum(row.cpu_seconds for row in result.processes)


def _spell(values: Sequence[float]) -> str:
    ratio, low, high = median_interval(values)
    return f"{ratio:.2f} | {low:.2f} to {high:.2f}"


if __name__ == "__main__":
    main()

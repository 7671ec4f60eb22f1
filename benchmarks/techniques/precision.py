"""Measures how computing in two bytes affects what is learned.

`python -m benchmarks.techniques.precision [torch:fsdp tf:mirrored ...]` trains each workload on two devices in float32 and with
`--precision bf16`, and prints the metric on held-out examples: the median of five seeds, the largest deviation of one seed,
and by how many points bf16 is worse. A point is 0.01 of accuracy or of an area, and 1 % of the bits per token. It should be
at most one point.
"""

import argparse
import statistics
from collections.abc import Sequence

from samestep.common.cell import Cell
from samestep.common.judging.metrics import direction_of
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult

CELLS = ("torch:ddp", "torch:fsdp", "tf:mirrored")
WORKLOADS = ("digits-mlp", "mnist-cnn", "flights-ranker", "prose-gpt")
SEEDS = 5
HEADINGS = ("row, workload", "metric", "float32", "bf16", "points worse", "worst seed")


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains every row with every workload, and prints each line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args(arguments)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    with Launcher() as launcher:
        for cell in given.cells:
            for workload in given.workloads:
                print(f"| {' | '.join(_compared(launcher, cell, workload, given.seeds))} |", flush=True)


def _compared(launcher: Launcher, cell: str, workload: str, seeds: int) -> tuple[str, ...]:
    plain, narrow = (
        [_take(launcher, cell + how, workload=workload, seed=seed) for seed in range(seeds)]
        for how in ("", "+precision=bf16")
    )
    name = plain[0].metric_name
    sign = -1 if direction_of(name) == "lower" else 1
    before, after = (statistics.median(run.metric_value for run in runs) for runs in (plain, narrow))
    one_point = before / 100 if sign < 0 else 0.01
    each = [
        sign * (one.metric_value - other.metric_value) / one_point for one, other in zip(plain, narrow, strict=True)
    ]
    points = sign * (before - after) / one_point
    return f"`{cell}`, {workload}", name, f"{before:.4f}", f"{after:.4f}", f"{points:+.2f}", f"{max(each):+.2f}"


def _take(launcher: Launcher, cell: str, **fields: object) -> RunResult:
    asked = Cell.parse(cell).apply_to(RunConfig(devices=2, parity=False, timeout_seconds=300.0, **fields))
    return launcher.run_apart(parse(asked), launch_of(asked))


if __name__ == "__main__":
    main()

"""Measures what a step of a whole run costs in processor time, here and in another checkout.

`python -m benchmarks.cpu OLD [torch:ddp ...]` runs the command of both versions, each with a long and a short run. For each cell
it prints the processor seconds of a step (of all processes, user and system, the long run minus the short one) and the median
ratio of here to there with its 95 % interval. Both versions run at the same time on the same half of the cores and take turns
every few milliseconds, so anything that slows these cores slows both. The halves change from pair to pair.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.intervals import median_interval
from samestep.common.catalog import strategy_info
from samestep.common.cell import Cell
from samestep.common.request import RunConfig

HERE = Path(__file__).parents[1]
CELLS = ["torch:single", "torch:ddp", "tf:single"]
SHORT, LONG, PAIRS = 200, 5200, 10
"""A run of 200 steps has as many profiled steps as a longer one, so those cancel in the difference."""
MODULES = ("samestep", "experiments.run")
"""The module of the command now, and before there was a package `samestep`."""


def main() -> None:
    """Measures every cell, in pairs of both versions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the other checkout")
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    given = parser.parse_args()
    print("| cell | here, ms a step | there, ms a step | here / there | 95 % |\n|---|---|---|---|---|", flush=True)
    for cell in given.cells:
        pairs = [seconds_of_a_step([HERE, given.old], cell, _half(number)) for number in range(given.pairs)]
        ratio, low, high = median_interval([here / there for here, there in pairs])
        middle = [f"{1e3 * sorted(times)[len(times) // 2]:.3f}" for times in zip(*pairs, strict=True)]
        print(f"| {cell} | {' | '.join(middle)} | {ratio:.3f} | {low:.3f} .. {high:.3f} |", flush=True)


def _half(number: int) -> list[int]:
    cores = sorted(os.sched_getaffinity(0))
    middle = len(cores) // 2
    return cores[middle:] if number % 2 else cores[: max(1, middle)]


def seconds_of_a_step(checkouts: Sequence[Path], cell: str, cores: Sequence[int]) -> list[float]:
    """Returns the processor seconds of a step of each version.

    Args:
        checkouts: The versions.
        cell: The cell to run.
        cores: The cores that all versions share.
    """
    long, short = (processor_seconds(checkouts, cell, steps, cores) for steps in (LONG, SHORT))
    return [(whole - start) / (LONG - SHORT) for whole, start in zip(long, short, strict=True)]


def processor_seconds(checkouts: Sequence[Path], cell: str, steps: int, cores: Sequence[int]) -> list[float]:
    """Returns the processor seconds of the command of each version and all its processes, run at the same time.

    Args:
        checkouts: The versions.
        cell: The cell to run.
        steps: The number of steps.
        cores: The cores that all versions share.
    """
    with tempfile.TemporaryDirectory() as scratch:
        started = [
            _start(checkout, cell, steps, cores, Path(scratch, str(number)))
            for number, checkout in enumerate(checkouts)
        ]
        used = [os.wait4(process.pid, 0)[1:] for process in started]
    if any(status for status, _ in used):
        raise SystemExit(f"{cell} failed: {[status for status, _ in used]}")
    return [usage.ru_utime + usage.ru_stime for _, usage in used]


def _start(checkout: Path, cell: str, steps: int, cores: Sequence[int], scratch: Path) -> subprocess.Popen[bytes]:
    config = Cell.parse(cell).apply_to(RunConfig())
    devices = "2" if strategy_info(config.framework, config.strategy).axes else "1"
    module = [MODULES[0], "run"] if (checkout / MODULES[0]).exists() else [MODULES[1]]
    line = (
        f"--framework {config.framework} --strategy {config.strategy} --devices {devices} --steps {steps} --no-parity"
    )
    line += " --workload digits-mlp+width=32 --batch-size 48"
    scratch.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", *module, *line.split(), "--out", str(scratch / "run")],
        env=os.environ | {"PYTHONPATH": str(checkout)},
        cwd=scratch,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )


if __name__ == "__main__":
    main()

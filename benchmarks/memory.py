"""How much memory a run takes per step: flat, but for the losses themselves.

`python -m benchmarks.memory [numpy:oracle torch:single ...]` prints a row per cell: the most memory of its first process
in a short and in a long run, and the slope between them. `--steps 1000000` makes the long run longer.
"""

import argparse
import dataclasses
import tempfile
from pathlib import Path

from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.experiments.arguments import apply_cell

CELLS = ["numpy:oracle", "torch:single", "tf:single"]
SHORT = 1000
MEBIBYTE = 2**20


def main() -> None:
    """Every cell, a short and a long run each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--steps", type=int, default=20 * SHORT, help="of the long run")
    given = parser.parse_args()
    print(f"| cell | {SHORT:,} steps, MiB | {given.steps:,} steps, MiB | bytes a step |\n|---|---|---|---|", flush=True)
    with Launcher() as launcher:
        for cell in given.cells:
            short, long = (peak(launcher, cell, steps) for steps in (SHORT, given.steps))
            slope = (long - short) / (given.steps - SHORT)
            print(f"| {cell} | {short / MEBIBYTE:.1f} | {long / MEBIBYTE:.1f} | {slope:.0f} |", flush=True)


def peak(launcher: Launcher, cell: str, steps: int) -> int:
    """The most bytes that the first process of a run has had.

    Args:
        launcher: Takes the run.
        cell: What to run.
        steps: For how long.
    """
    asked = apply_cell(cell, RunConfig(workload="digits-mlp+width=32", batch_size=48, steps=steps, parity=False))
    dtype = "float64" if cell.startswith("numpy:") else "float32"
    with tempfile.TemporaryDirectory() as scratch:
        asked = dataclasses.replace(asked, dtype=dtype, out=str(Path(scratch) / "run"))
        return launcher.run(parse(asked), launch_of(asked)).processes[0].peak_rss_bytes


if __name__ == "__main__":
    main()

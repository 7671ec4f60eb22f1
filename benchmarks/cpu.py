"""What a step of a whole run costs in processor time, here and in another checkout: `python -m benchmarks.cpu OLD [torch:ddp ...]`.

Runs both versions' command in turn, a long run and a short one each, and prints for each cell the processor seconds of a
step (all processes, user and system, the long run less the short one) and the median ratio of here over there with its
95 % interval. Processor time depends far less than wall time on what else the machine does.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from samestep.common.catalog import strategy_info
from samestep.common.evidence.statistics import median_interval
from samestep.common.request import RunConfig
from samestep.experiments.arguments import apply_cell

HERE = Path(__file__).parents[1]
CELLS = ["torch:single", "torch:ddp", "tf:single"]
SHORT, LONG, PAIRS = 100, 5100, 10
MODULES = ("samestep", "experiments.run")
"""How the command is started now, and how it was before there was a package `samestep`."""


def main() -> None:
    """Every cell, in interleaved pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the other checkout")
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    given = parser.parse_args()
    print("| cell | here, ms a step | there, ms a step | here / there | 95 % |\n|---|---|---|---|---|", flush=True)
    for cell in given.cells:
        pairs = [(seconds_of_a_step(HERE, cell), seconds_of_a_step(given.old, cell)) for _ in range(given.pairs)]
        ratio, low, high = median_interval([here / there for here, there in pairs])
        middle = [f"{1e3 * sorted(times)[len(times) // 2]:.3f}" for times in zip(*pairs, strict=True)]
        print(f"| {cell} | {' | '.join(middle)} | {ratio:.3f} | {low:.3f} .. {high:.3f} |", flush=True)


def seconds_of_a_step(checkout: Path, cell: str) -> float:
    """Processor seconds of a step.

    Args:
        checkout: The version to run.
        cell: What to run.
    """
    long, short = (processor_seconds(checkout, cell, steps) for steps in (LONG, SHORT))
    return (long - short) / (LONG - SHORT)


def processor_seconds(checkout: Path, cell: str, steps: int) -> float:
    """What a command and all that it starts take of the processor.

    Args:
        checkout: The version to run.
        cell: What to run.
        steps: How many.
    """
    config = apply_cell(cell, RunConfig())
    devices = "2" if strategy_info(config.framework, config.strategy).axes else "1"
    module = [MODULES[0], "run"] if (checkout / MODULES[0]).exists() else [MODULES[1]]
    line = f"--framework {config.framework} --strategy {config.strategy} --workload digits-mlp+width=32 --batch-size 48"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            [sys.executable, "-m", *module, *line.split(), "--steps", str(steps), "--devices", devices, "--no-parity"]
            + ["--out", f"{scratch}/run"],
            env=os.environ | {"PYTHONPATH": str(checkout)},
            cwd=scratch,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()

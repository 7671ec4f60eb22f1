"""Measures what a start costs: the time to the first step of a strategy, cold and within a comparison.

`python -m benchmarks.cost.launch [torch:ddp ...]` alternately starts the processes of each row cold (with a new launcher and new
imports) and warm (with a launcher that has already imported the framework), and prints the medians and their ratio, which
should be at most a quarter.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from samestep.common.catalog import strategies_of
from samestep.common.request import FRAMEWORKS, RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher

REPEATS = 5


def main() -> None:
    """Measures every row of every installed framework."""
    print("| strategy | cold s | warm s | warm / cold |\n|---|---|---|---|", flush=True)
    for framework in (name for name in FRAMEWORKS if name != "numpy"):
        with Launcher() as kept:
            kept.warm([framework])
            rows = strategies_of(framework)
            for row in (r for r in rows if not sys.argv[1:] or f"{framework}:{r.name}" in sys.argv[1:]):
                cold, warm = zip(
                    *(_pair(framework, row.name, bool(row.axes), kept) for _ in range(REPEATS)), strict=True
                )
                medians = statistics.median(cold), statistics.median(warm)
                print(
                    f"| {framework}:{row.name} | {medians[0]:.2f} | {medians[1]:.2f} | {medians[1] / medians[0]:.3f} |",
                    flush=True,
                )


def _pair(framework: str, strategy: str, parallel: bool, kept: Launcher) -> tuple[float, float]:
    with Launcher() as fresh:
        cold = _first_step(framework, strategy, parallel, fresh)
    return cold, _first_step(framework, strategy, parallel, kept)


def _first_step(framework: str, strategy: str, parallel: bool, launcher: Launcher) -> float:
    """Returns the seconds from the command to the end of the first step."""
    out = str(Path(tempfile.mkdtemp()) / "run")
    asked = RunConfig(
        framework=framework, strategy=strategy, devices=2 if parallel else 1, steps=2, parity=False, out=out
    )
    run = parse(asked)
    reached: list[float] = []
    start = time.perf_counter()
    launcher.run(run, launch_of(asked), lambda step, losses, seconds: reached.append(time.perf_counter() - start))
    return reached[0]


if __name__ == "__main__":
    main()

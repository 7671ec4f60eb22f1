"""Checks whether two runs of one command have the same bits in every loss and every array of the state.

`python -m benchmarks.repeats [torch:ddp ...]` runs each synchronous row twice, on 2 devices and on 4, and prints a line per
pair. A row for one device runs only on that.
"""

import dataclasses
import sys
import tempfile
from pathlib import Path

from samestep.common.catalog import catalogue
from samestep.common.errors import Unavailable
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.state_file import read_state
from samestep.common.steps.log import read_log

WORKLOAD = "mnist-cnn+filters=4+hidden=16"


def main(chosen: list[str]) -> None:
    """Runs every pair of every row."""
    equal = count = 0
    with Launcher() as launcher:
        for framework, row in catalogue():
            if (
                row.varies(row.options())
                or (chosen and f"{framework}:{row.name}" not in chosen)
                or framework == "numpy"
            ):
                continue
            for devices in (2, 4) if row.axes else (1,):
                asked = RunConfig(framework, row.name, WORKLOAD, devices=devices, batch_size=48, steps=20)
                asked = dataclasses.replace(asked, parity=False, keep_state=True)
                try:
                    first, second = (_bits(launcher, asked) for _ in range(2))
                except Unavailable as error:
                    print(f"{framework}:{row.name}: {error}", flush=True)
                    continue
                equal, count = equal + (first == second), count + 1
                print(f"{framework}:{row.name} on {devices}: {'equal' if first == second else 'NOT EQUAL'}", flush=True)
    print(f"{equal} of {count} pairs are equal, bit for bit")


def _bits(launcher: Launcher, asked: RunConfig) -> tuple[object, ...]:
    """Returns everything that a run computed."""
    with tempfile.TemporaryDirectory() as scratch:
        asked = dataclasses.replace(asked, out=str(Path(scratch, "run")))
        run, launch = parse(asked), launch_of(asked)
        check_launch(run, launch)
        launcher.run(run, launch)
        state = read_state(Path(scratch, "run"))
        groups = {"params": state.params, "buffers": state.buffers, **state.slots, **dict(enumerate(state.local))}
        arrays = {(group, name): array.tobytes() for group, held in groups.items() for name, array in held.items()}
        return list(read_log(Path(scratch, "run")).losses), arrays


if __name__ == "__main__":
    main(sys.argv[1:])

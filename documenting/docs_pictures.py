"""Draws the pictures of docs/: `python -m documenting.docs_pictures [CELL ...]`; without cells, those of every row."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.catalog import catalogue
from samestep.common.cell import Cell
from samestep.common.errors import Unavailable
from samestep.common.request import RunConfig, launch_of
from samestep.common.runtime.parent.processes.scratch import make_scratch
from samestep.common.timeline import PHASE_OF_LETTER
from samestep.experiments.cli.ending import run_command
from samestep.experiments.page.drawings.svg import file_of
from samestep.experiments.page.drawings.timeline import timeline
from samestep.experiments.printing.picture import DEVICES, SMALL, draw
from samestep.experiments.printing.trace_file import Trace, load_trace

if TYPE_CHECKING:
    from samestep.common.runtime.parent.launcher import Launcher  # it needs NumPy

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
_MESHES = {"torch:hybrid": "+mesh=pipe=2,tensor=2", "tf:dtensor": "+mesh=tensor=2"}
"""The meshes that show what is particular about rows with several axes."""


def cells() -> list[str]:
    """Returns the cell of each row that has a picture, i.e. of all but the oracle."""
    names = [f"{framework}:{row.name}" for framework, row in catalogue() if framework != "numpy"]
    return [name + _MESHES.get(name, "") for name in names]


def place(cell: str) -> Path:
    """Returns the file of a cell's picture.

    Args:
        cell: One of `cells`.
    """
    return FOLDER / (cell.partition("+")[0].replace(":", "-") + ".svg")


SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "zbv_zero_bubble")
_LARGE = dataclasses.replace(SMALL, workload="synthetic-mlp+width=768+layers=9", batch_size=512, trace=True)
"""The request of a traced pipeline, whose passes take longer than its messages."""


def schedule_place(schedule: str) -> Path:
    """Returns the file of a schedule's picture.

    Args:
        schedule: One of `SCHEDULES`.
    """
    return FOLDER / f"schedule-{schedule}.svg"


def trace_schedule(launcher: "Launcher", schedule: str, like: RunConfig = _LARGE) -> Trace:
    """Traces a pipeline of two ranks with four micro-batches.

    Args:
        launcher: The launcher that starts the processes.
        schedule: One of `SCHEDULES`.
        like: The request, apart from the schedule and the devices.
    """
    from samestep.common.run import parse  # imported here, because --help imports no NumPy

    config = Cell.parse(f"torch:pp+microbatches=4+schedule={schedule}").apply_to(
        dataclasses.replace(like, devices=DEVICES)
    )
    with make_scratch() as scratch:
        config = dataclasses.replace(config, out=f"{scratch}/run")
        launcher.run(parse(config), launch_of(config))
        trace = load_trace(Path(config.out or ""))
    assert trace is not None, "it was asked for"
    return trace


def passes(trace: Trace, step: int) -> list[list[str]]:
    """Returns the computations of each device in order, with stage and micro-batch, as in "1F0".

    Args:
        trace: The trace of a pipeline.
        step: The number of the step.
    """
    letters = {name: letter for letter, name in PHASE_OF_LETTER.items()}
    found = []
    for device in trace.devices:
        own: dict[str, None] = {}
        for span in device.lanes["compute"]:
            if span.step == step and span.microbatch is not None:
                own[f"{span.stage}{letters[span.name]}{span.microbatch}"] = None
        found.append(list(own))
    return found


def drawn_from(trace: Trace) -> str:
    """Returns a digest of the order in which a pipeline computes, for the file of the drawing; times differ in every run.

    Args:
        trace: The trace of a pipeline.
    """
    order = [passes(trace, step) for step in trace.steps[:1]]
    return hashlib.sha256(json.dumps(order).encode()).hexdigest()[:16]


def draw_schedule(launcher: "Launcher", schedule: str) -> str:
    """Traces and draws a schedule; returns the text of the file.

    Args:
        launcher: The launcher that starts the run.
        schedule: One of `SCHEDULES`.
    """
    trace = trace_schedule(launcher, schedule)
    root = timeline(trace, f"torch:pp, {schedule}, four micro-batches")
    root.set("data-drawn-from", drawn_from(trace))
    return file_of(root)


def main(arguments: Sequence[str]) -> int:
    """Draws the rows that can run here, and leaves the pictures of others unchanged."""
    from samestep.common.runtime.parent.launcher import Launcher  # here: --help imports no NumPy

    FOLDER.mkdir(exist_ok=True)
    with Launcher() as launcher:
        for cell in arguments or cells():
            try:
                place(cell).write_text(file_of(draw(launcher, [cell])))
                print(place(cell))
            except Unavailable as error:
                print(f"{cell}: not drawn again: {error}")
        for schedule in SCHEDULES if not arguments else ():
            schedule_place(schedule).write_text(draw_schedule(launcher, schedule))
            print(schedule_place(schedule))
    return 0


if __name__ == "__main__":
    run_command(main)

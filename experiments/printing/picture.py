"""Draws strategies: each is run for a few steps, and the observed step at the end is drawn."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from samestep.common.catalog import strategy_info
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.files.output_file import check_output, save
from samestep.common.mesh import AXES
from samestep.common.request import Launch, RunConfig, launch_of
from samestep.common.strategy import Run
from samestep.common.workload.optimizers.table import DEFAULT
from samestep.experiments.page.drawings.anatomy import WIDTH, Scale, anatomy
from samestep.experiments.page.drawings.device_bars import drawn_from
from samestep.experiments.page.drawings.svg import drawing, file_of

if TYPE_CHECKING:
    from samestep.common.runtime.parent.launcher import Launcher  # it needs NumPy
    from samestep.common.runtime.records import RunResult

SMALL = RunConfig(workload="synthetic-mlp+width=32", batch_size=48, steps=4, optimizer=DEFAULT, parity=False)
"""The request for a drawing: AdamW has a state of twice the parameters, and DDP has found its buckets after two steps."""
DEVICES = 2
_SEQUENCES = "synthetic-gpt+layers=1+heads=2+width=8+context=8"
_WORKLOADS = {"positions": _SEQUENCES, "stacked": f"{_SEQUENCES}+experts=4"}
"""Dimension that not every model has -> the workload for strategies that cut it."""


def small_request(cell: str) -> RunConfig:
    """Returns the request of the run that is drawn.

    Args:
        cell: A cell such as `torch:fsdp+devices=4`; without a number it gets two devices.
    """
    config = Cell.parse(cell).apply_to(SMALL)
    axes = strategy_info(config.framework, config.strategy).axes
    for cut in [cut for axis in axes[:1] for cut in AXES[axis].cuts if cut in _WORKLOADS]:
        config = dataclasses.replace(config, workload=_WORKLOADS[cut])
    alone = not axes or config.mesh or config.devices
    return config if alone else dataclasses.replace(config, devices=DEVICES)


def small_run(cell: str) -> tuple[Run, Launch]:
    """Returns the run that is drawn, checked but not started.

    Args:
        cell: A cell such as `torch:fsdp+devices=4`.

    Raises:
        ConfigError: There is no such cell, or it trains nothing.
        Unavailable: It cannot be run here.
    """
    from samestep.common.run import parse  # here, like the next one: --help imports no NumPy
    from samestep.common.runtime.parent.check import check_launch

    Cell.parse(cell).check_strategy()
    config = small_request(cell)
    run, launch = parse(config), launch_of(config)
    check_launch(run, launch)
    if run.strategy.compiled_cores(run.options):
        raise ConfigError(f"{cell} only compiles a step, and there is nothing to draw; leave out what compiles it.")
    return run, launch


def observe(launcher: "Launcher", cell: str) -> "tuple[Run, RunResult]":
    """Runs a strategy on a small model.

    Args:
        launcher: Starts its processes.
        cell: The strategy with its options.

    Raises:
        SamestepError: It cannot be run here, or failed.
    """
    run, launch = small_run(cell)
    return run, launcher.run_apart(run, launch)


def draw(launcher: "Launcher", cells: Sequence[str]) -> Element:
    """Draws the anatomies of strategies next to each other, at one scale.

    Args:
        launcher: Starts their runs, one after the other.
        cells: The cells of the strategies.

    Raises:
        SamestepError: One cannot be run here, or failed.
    """
    found = [observe(launcher, cell) for cell in cells]
    scales = [Scale.of(run, result) for run, result in found]
    scale = Scale(max(each.longest_bytes for each in scales), max(each.widest_bytes for each in scales))
    drawn = [anatomy(run, result, scale) for run, result in found]
    for (_, result), each in zip(found, drawn, strict=True):
        each.set("data-drawn-from", drawn_from(result))
    if len(drawn) == 1:
        return drawn[0]
    height = max(float(each.get("height", "0")) for each in drawn)
    together = drawing(len(drawn) * WIDTH, height, " beside ".join(run.name for run, _ in found), "")
    for place, each in enumerate(drawn):
        each.set("x", str(place * WIDTH))
        together.append(each)
    return together


def write_picture(cells: Sequence[str], out: str | None) -> Path:
    """Draws strategies into a file.

    Args:
        cells: The cells of the strategies, which are drawn next to each other.
        out: The file; by default one named after the cells.

    Raises:
        ConfigError: There is no such cell, or the file cannot be written.
    """
    from samestep.common.runtime.parent.launcher import Launcher  # here: --help imports no NumPy

    for cell in cells:
        small_run(cell)  # before any is started
    path = Path(out or "-beside-".join(file_name(cell) for cell in cells) + ".svg")
    check_output(path)
    with Launcher() as launcher:
        text = file_of(draw(launcher, cells))
    save(text, path)
    return path


def file_name(cell: str) -> str:
    """Returns a cell as the stem of a file's name.

    Args:
        cell: A cell such as `torch:hybrid+mesh=pipe=2,tensor=2`.
    """
    return "".join(letter if letter.isalnum() or letter in "_=" else "-" for letter in cell)

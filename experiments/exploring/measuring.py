"""The measured steps of the page, from strategies that are run for it, or from existing runs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.experiments.exploring.grid import Grid, key_of, request
from samestep.experiments.exploring.steps import played

Measured = tuple[str, dict[str, object]]
"""The point of the grid at which a strategy was run, and its step."""
_ALIKE = ("workload", "model", "data", "batch_size", "optimizer", "dtype")
"""The fields in which two runs that are shown side by side must agree."""


def run_row(launcher: Launcher, grid: Grid, cell: Cell, devices: int, width: int | None) -> Measured:
    """Runs a row for a few steps.

    Args:
        launcher: Starts its processes.
        grid: What is trained.
        cell: The row.
        devices: The number of devices.
        width: The width, if the model has one.

    Raises:
        SamestepError: It cannot be run here, or failed.
    """
    config = request(grid, cell, devices, width)
    run, launch = parse(config), launch_of(config)
    check_launch(run, launch)
    result = launcher.run_apart(run, launch)
    return key_of(devices, width), played(run, result.processes, result.sent_bytes)


@dataclasses.dataclass(frozen=True)
class PlayedRun:
    """An existing run.

    Attributes:
        path: Its directory.
        cell: Its cell, with options that are not the defaults.
        run: The checked request.
        result: The result.
    """

    path: Path
    cell: Cell
    run: Run
    result: RunResult

    def measured(self, width: int | None) -> Measured:
        """Returns the point of the grid at which it was run, and its step.

        Args:
            width: The width of its model, if it has one.
        """
        return key_of(self.run.num_devices, width), played(self.run, self.result.processes, self.result.sent_bytes)


def read_runs(paths: Sequence[Path]) -> tuple[list[PlayedRun], RunConfig]:
    """Reads finished runs of the same model.

    Args:
        paths: Their directories.

    Returns:
        The runs, and their request, apart from strategy and devices.

    Raises:
        ConfigError: A run cannot be read or has no step, or two runs trained different things.
    """
    results = [load_result(path) for path in paths]
    for path, result in zip(paths, results, strict=True):
        if result.config.model is not None:
            raise ConfigError(
                f"{path} trained {result.config.model}, which is not samestep's own; give a run of a --workload. "
                "`samestep report` draws what any run holds and sends."
            )
    found = [
        PlayedRun(path, Cell.of(result.config), parse(result.config), result)
        for path, result in zip(paths, results, strict=True)
    ]
    first, *others = found
    for each in found:
        if not any(row.params_peak_bytes for row in each.result.processes):
            raise ConfigError(f"{each.path} took no step that was observed; give a run that trained.")
    for each in others:
        for name in _ALIKE:
            one, other = (getattr(run.result.config, name) for run in (first, each))
            if one != other:
                raise ConfigError(f"{first.path} has {name} {one}, {each.path} has {other}; give two runs of the same.")
    config = first.result.config
    return found, dataclasses.replace(config, mesh=None, devices=None, options={}, techniques=Techniques(), out=None)

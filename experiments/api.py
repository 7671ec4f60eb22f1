"""The commands as functions: `import samestep` offers them. They print nothing; `docs/api.md` shows them."""

import contextlib
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Unpack

from samestep.common.errors import unknown
from samestep.common.flags import Scalar
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.verdict import raise_if_missed
from samestep.common.runtime.records import RunResult, load_result
from samestep.experiments import rows
from samestep.experiments.arguments import complete_cell, read_request, split_cells
from samestep.experiments.compare import every_cell, shared_request
from samestep.experiments.comparison import Comparison
from samestep.experiments.forecast import Forecast, forecast
from samestep.experiments.predict import read
from samestep.experiments.progress import show_progress
from samestep.settings import CompareSettings, PredictSettings, RunSettings


def run(cell: str, *, progress: bool = False, **settings: Unpack[RunSettings]) -> RunResult:
    """Trains one workload under one strategy and holds every step against the oracle.

    Args:
        cell: As in `torch:ddp+clip_norm=1`; the framework may be left out where only one has the strategy.
        progress: Whether to show on stderr that it moves.
        **settings: The flags of `samestep run` and of the strategy, by their names in Python: `batch_size=48`.

    Returns:
        What the run left in its directory's `result.json`.

    Raises:
        ConfigError: The request is wrong; nothing was started.
        Unavailable: This machine lacks something; the message says how to get it.
        ParityFailed: It trained, but did not take the same step. The directory holds the result.
        WorkerFailed: A process died or hung.
        Diverged: The loss is not finite.
    """
    given = _known(settings, RunSettings.__annotations__)
    config = read_request(complete_cell(cell, RunConfig.framework), given)
    checked, launch = parse(config), launch_of(config)
    if note := check_launch(checked, launch):
        warnings.warn(note, stacklevel=2)
    shown = show_progress(checked, checked.name) if progress else contextlib.nullcontext()
    with Launcher() as launcher, shown as watcher:
        result = launcher.run(checked, launch, watcher)
    raise_if_missed(result)
    return result


def compare(
    cells: Sequence[str] | None = None,
    *,
    require: Sequence[str] = (),
    progress: bool = False,
    **settings: Unpack[CompareSettings],
) -> Comparison:
    """Trains one workload under many strategies, one after the other, the oracle first.

    A row that fails, misses parity or is unavailable does not end the comparison: `Comparison.require` raises for it.

    Args:
        cells: As in `["torch:ddp", "tf:mirrored"]`; every strategy, unless given.
        require: Cells that must be judged; those that are not among `cells` are added.
        progress: Whether to show on stderr that it moves.
        **settings: The flags of `samestep compare`, by their names in Python: `batch_size=48`.

    Raises:
        ConfigError: The request is wrong; nothing was started.
        Unavailable: The package with the data is not installed.
        KeyboardInterrupt: Ctrl-C ended it; the runs that were done are in their directories.
    """
    base = shared_request(_known(settings, CompareSettings.__annotations__))
    named = every_cell(None) if cells is None else _cells("cells", cells)
    required = _cells("require", require) if require else []
    comparison = rows.compare(named, base, cells is not None, required, quiet=not progress)
    if comparison.interrupt:
        raise comparison.interrupt
    return comparison


def predict(cell: str | None = None, **settings: Unpack[PredictSettings]) -> Forecast:
    """Predicts what a step holds and sends, without running anything.

    Args:
        cell: As in `torch:fsdp`; every strategy that can take the request, unless given.
        **settings: The flags of `samestep predict` and of the strategy, by their names in Python: `device_memory="80GiB"`.

    Raises:
        ConfigError: The request is wrong, or no strategy can take it.
    """
    given = _known(settings, PredictSettings.__annotations__)
    full = None if cell is None else complete_cell(cell, RunConfig.framework)
    return forecast(full, *read(full, given))


def load(path: str | os.PathLike[str]) -> RunResult:
    """Reads the result of a finished run.

    Args:
        path: The run directory; one of an older version is read as well.

    Raises:
        ConfigError: There is none, or it is damaged.
    """
    return load_result(Path(path))


def _cells(name: str, cells: Sequence[str]) -> list[str]:
    return split_cells(name, cells if isinstance(cells, str) else ",".join(cells))


def _known(settings: Mapping[str, Scalar], names: Iterable[str]) -> Mapping[str, Scalar]:
    """The settings, unless there is one that has no such name."""
    for name in settings:
        if name not in names:
            raise unknown("setting", name, names)
    return settings

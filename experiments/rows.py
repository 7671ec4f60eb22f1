"""Runs the cells of a comparison: all are checked, then they run one after the other, the oracle first."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from samestep.common.catalog import require, strategy_info
from samestep.common.errors import ConfigError, SamestepError, Unavailable
from samestep.common.request import Launch, RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.reference import ORACLE
from samestep.common.strategy import Run
from samestep.experiments.arguments import apply_cell
from samestep.experiments.comparison import FAILED, IMPOSSIBLE, NOT_RUN, UNAVAILABLE, Comparison, Row
from samestep.experiments.progress import show_progress

Planned = tuple[Run, Launch, str]
"""What to run, how to start it, and what the user should know before."""


def compare(
    cells: Sequence[str], base: RunConfig, strict: bool, required: Sequence[str] = (), quiet: bool = False
) -> Comparison:
    """Runs cells one after the other, the oracle first.

    Args:
        cells: As in `torch:ddp`.
        base: What all have in common, the techniques included.
        strict: Whether the user named the cells: then each must be possible, and one that is unavailable fails the
            comparison; otherwise those that cannot run are listed with the reason.
        required: Cells that must be judged, to their last step; those that `cells` lacks are added.
        quiet: Whether to print nothing; otherwise the progress goes to stderr.

    Raises:
        SamestepError: The request is wrong; nothing was started.
    """
    if required and base.parity is False:
        raise ConfigError("--require judges what --no-parity leaves unjudged; give one of them.")
    named = tuple(dict.fromkeys([*(cells if strict else ()), *required]))
    cells = list(dict.fromkeys([ORACLE, *cells, *required]))
    plans = {cell: _plan(cell, base, cell in named, cell in required) for cell in cells}
    rows = {cell: plan for cell, plan in plans.items() if isinstance(plan, Row)}
    interrupt = None
    try:
        _run({cell: plan for cell, plan in plans.items() if not isinstance(plan, Row)}, rows, quiet)
    except KeyboardInterrupt as error:
        interrupt = error
    found = tuple(rows.get(cell) or Row(cell, NOT_RUN, "interrupted") for cell in cells)
    return Comparison(found, named, tuple(required), base.parity is True, interrupt)


def _plan(cell: str, base: RunConfig, named: bool, required: bool) -> Planned | Row:
    """Checks a cell before anything starts.

    Returns:
        What to run, or the row of a cell that cannot run.
    """
    config = apply_cell(cell, base)
    info = strategy_info(config.framework, config.strategy)
    config = dataclasses.replace(
        config,
        devices=None if config.mesh else base.devices if info.axes else 1,
        dtype=base.dtype if base.dtype in info.dtypes or (named and cell != ORACLE) else info.dtypes[0],
        threads=1 if cell == ORACLE else base.threads,
        out=str(Path(base.out) / cell.replace(":", "-")) if base.out else None,
        parity=True if required else base.parity,
    )
    try:
        run, launch = parse(config), launch_of(config)
        note = check_launch(run, launch)
    except Unavailable as error:
        if cell == ORACLE:  # NumPy is always there, so it is the data that is not
            raise
        return Row(cell, UNAVAILABLE, str(error))
    except ConfigError as error:
        if named or cell == ORACLE:
            raise
        return Row(cell, IMPOSSIBLE, str(error))
    return run, launch, note


def _run(plans: dict[str, Planned], rows: dict[str, Row], quiet: bool) -> None:
    """Adds the row of each plan, as it is found."""
    with Launcher() as launcher:
        for note in dict.fromkeys(note for _, _, note in plans.values() if note):
            _tell(note, quiet)
        frameworks = list(dict.fromkeys(run.framework for run, _, _ in plans.values()))
        _tell(f"Importing {', '.join(require(framework) for framework in frameworks)} ...", quiet)
        launcher.warm(frameworks, next(run.threads for run, _, _ in plans.values()))
        for cell, (run, launch, _) in plans.items():
            rows[cell] = _take(cell, run, launch, launcher, quiet)
            _tell(f"{cell}: {rows[cell].seconds:.1f} s", quiet)


def _take(cell: str, run: Run, launch: Launch, launcher: Launcher, quiet: bool) -> Row:
    started = time.time()
    try:
        with contextlib.nullcontext() if quiet else show_progress(run, cell) as progress:
            result = launcher.run(run, launch, progress, started)
    except Unavailable as error:
        return Row(cell, UNAVAILABLE, str(error), seconds=time.time() - started)
    except SamestepError as error:
        return Row(cell, FAILED, str(error), seconds=time.time() - started)
    return Row.of(cell, result, time.time() - started)


def _tell(line: str, quiet: bool) -> None:
    if not quiet:
        print(line, file=sys.stderr, flush=True)

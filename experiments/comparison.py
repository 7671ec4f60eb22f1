"""A comparison: its cells are checked, run one after the other, and reported in one table."""

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from samestep.common.catalog import require, strategy_info
from samestep.common.errors import ConfigError, SamestepError, Unavailable
from samestep.common.request import Launch, RunConfig, Techniques, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.check import check_launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.verdict import ORACLE
from samestep.common.runtime.records import RunResult
from samestep.common.strategy import Run
from samestep.experiments import tables
from samestep.experiments.arguments import apply_cell
from samestep.experiments.compiled import compiled
from samestep.experiments.progress import show_progress
from samestep.experiments.ranking import ranking

Planned = tuple[str, Run, Launch]


@dataclasses.dataclass
class Comparison:
    """What a comparison has found so far.

    Attributes:
        results: Of the runs that trained.
        reasons: Cell -> (status, why there is no result).
    """

    results: list[RunResult] = dataclasses.field(default_factory=list)
    reasons: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """4 if a row that promises parity missed it, 1 if a row failed, else 0."""
        missed = any(result.parity.passed is False for result in self.results)
        failed = any(status == "failed" for status, _ in self.reasons.values())
        return 4 if missed else 1 if failed else 0

    def report(self, command: str) -> str:
        """Everything that a comparison prints.

        Args:
            command: The line that repeats it.
        """
        failures = [(cell, status) for cell, (status, _) in self.reasons.items()]
        notes = [f"{cell} is {status}: {why}" for cell, (status, why) in self.reasons.items()]
        for r in self.results:
            if not r.parity.passed and r.framework != "numpy":
                what = "did not take the same step" if r.parity.passed is False else "was not judged"
                notes.append(f"{tables.cell(r)} {what}: {r.parity.reason}")
        parts = [
            tables.caption(self.results) if self.results else "",
            tables.comparison(self.results, failures),
            compiled(self.results),
            "\n".join(notes),
            f"Again: {command}",
            tables.verdict(self.results),
            ranking(self.results),
        ]
        return "\n\n".join(filter(None, parts))


def compare(cells: Sequence[str], base: RunConfig, techniques: Techniques, strict: bool) -> Comparison:
    """Runs cells one after the other, the oracle first.

    Args:
        cells: As in `torch:ddp`.
        base: What all have in common.
        techniques: Likewise.
        strict: Whether the user named the cells: then each must be runnable; otherwise those that cannot run are skipped
            and listed with the reason.

    Raises:
        SamestepError: The request is wrong; nothing was started.
    """
    comparison = Comparison()
    shared = dataclasses.replace(base, techniques=techniques)
    planned = [found for cell in dict.fromkeys([ORACLE, *cells]) if (found := _plan(cell, shared, comparison, strict))]
    with Launcher() as launcher:
        frameworks = list(dict.fromkeys(run.framework for _, run, _ in planned))
        print(f"Importing {', '.join(require(f) for f in frameworks)} ...", file=sys.stderr, flush=True)
        launcher.warm(frameworks, planned[0][1].threads)
        for cell, run, launch in planned:
            _take(cell, run, launch, launcher, comparison)
    return comparison


def _plan(cell: str, base: RunConfig, comparison: Comparison, strict: bool) -> Planned | None:
    """Checks a cell before anything starts; None if it gets no run."""
    config = apply_cell(cell, base)
    info = strategy_info(config.framework, config.strategy)
    config = dataclasses.replace(
        config,
        devices=base.devices if info.axes else 1,
        dtype=base.dtype if base.dtype in info.dtypes or (strict and cell != ORACLE) else info.dtypes[0],
        threads=1 if cell == ORACLE else base.threads,
        out=str(Path(base.out) / cell.replace(":", "-")) if base.out else None,
    )
    try:
        run, launch = parse(config), launch_of(config)
        check_launch(run, launch)
    except Unavailable as error:
        if cell == ORACLE:  # NumPy is always there, so it is the data that is not
            raise
        comparison.reasons[cell] = ("unavailable", str(error))
    except ConfigError as error:
        if strict or cell == ORACLE:
            raise
        comparison.reasons[cell] = ("not possible", str(error))
    else:
        return cell, run, launch
    return None


def _take(cell: str, run: Run, launch: Launch, launcher: Launcher, comparison: Comparison) -> None:
    started = time.time()
    try:
        with show_progress(run, cell) as progress:
            comparison.results.append(launcher.run(run, launch, progress, started))
    except Unavailable as error:
        comparison.reasons[cell] = ("unavailable", str(error))
    except SamestepError as error:
        comparison.reasons[cell] = ("failed", str(error))
    print(f"{cell}: {time.time() - started:.1f} s", file=sys.stderr, flush=True)

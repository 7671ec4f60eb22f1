"""Every strategy on one workload, one table: `python -m experiments.compare`. The oracle is its first row."""

import dataclasses
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from common.config import FRAMEWORKS, RunConfig, check_numbers
from common.errors import ConfigError, SamestepError, Unavailable, unknown
from common.runtime.check import check
from common.runtime.launcher import Launcher
from common.runtime.records import RunResult
from common.strategy import framework_info, require
from common.workload.table import Workload
from experiments import tables
from experiments.arguments import Parser, add_flags, parse_cell, read_flags, run_command
from experiments.compiled import compiled
from experiments.progress import shown
from experiments.ranking import ranking

ORACLE = "numpy:oracle"
_OTHERS = [framework for framework in FRAMEWORKS if framework != "numpy"]
_NOT_HERE = ("framework", "strategy", "prepare", "start_from", "mesh", "options", "techniques")


@dataclasses.dataclass
class Rows:
    """What a comparison has found so far.

    Attributes:
        results: Of the runs that trained.
        reasons: Cell -> (status, why there is no result).
    """

    results: list[RunResult] = dataclasses.field(default_factory=list)
    reasons: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)


def main(arguments: Sequence[str]) -> int:
    """Runs every cell, prints the table; 1 if a row failed, 4 if one that promises parity missed it.

    Raises:
        SamestepError: The request is wrong; nothing was started.
    """
    parser = Parser(prog="python -m experiments.compare", allow_abbrev=False, description=__doc__)
    parser.add_argument("--framework", help=f"its strategies only: {' or '.join(_OTHERS)}")
    parser.add_argument("--strategies", help="these cells only, as in torch:ddp,tf:mirrored")
    add_flags(parser, RunConfig, _NOT_HERE)
    flags = vars(parser.parse_args(arguments))
    named, framework = flags.pop("strategies"), flags.pop("framework")
    if framework not in (None, *_OTHERS):
        raise unknown("framework", framework, _OTHERS)
    base = RunConfig(**{"devices": 2, **read_flags(flags, RunConfig)})  # two: the least that has anything to exchange
    check_numbers(base)
    cells = [ORACLE, *(named.split(",") if named else _cells(framework))]
    rows = Rows()
    planned = _plan(cells, base, rows, strict=bool(named))
    _run_all(planned, rows)
    print(_report(rows, _again(arguments)), flush=True)
    missed = any(result.parity.passed is False for result in rows.results)
    failed = any(status == "failed" for status, _ in rows.reasons.values())
    return 4 if missed else 1 if failed else 0


def _again(arguments: Sequence[str]) -> str:
    """The line that repeats the comparison, without the place it was written to."""
    kept = [a for i, a in enumerate(arguments) if a.partition("=")[0] != "--out" and [*arguments, ""][i - 1] != "--out"]
    return shlex.join(["python", "-m", "experiments.compare", *kept])


def _cells(framework: str | None) -> list[str]:
    frameworks = [framework] if framework else _OTHERS
    return [f"{name}:{row.name}" for name in frameworks for row in framework_info(name).rows]


def _plan(cells: list[str], base: RunConfig, rows: Rows, strict: bool) -> list[tuple[str, RunConfig, Workload]]:
    """Checks every cell before anything starts. What was named must be possible; of all there is, what is gets a run."""
    planned = []
    for cell in dict.fromkeys(cells):
        framework, info, options = parse_cell(cell)
        config = dataclasses.replace(
            base,
            framework=framework,
            strategy=info.name,
            options=options,
            devices=base.devices if info.axes else 1,
            dtype=base.dtype if base.dtype in info.dtypes or strict else info.dtypes[0],
            out=str(Path(base.out) / cell.replace(":", "-")) if base.out else None,
        )
        if cell == ORACLE:
            config = dataclasses.replace(config, dtype="float64", threads=1)
        try:
            planned.append((cell, *check(config)))
        except Unavailable as error:
            if cell == ORACLE:  # NumPy is always there, so it is the data that is not
                raise
            rows.reasons[cell] = ("unavailable", str(error))
        except ConfigError as error:
            if strict or cell == ORACLE:
                raise
            rows.reasons[cell] = ("not possible", str(error))
    return planned


def _run_all(planned: list[tuple[str, RunConfig, Workload]], rows: Rows) -> None:
    with Launcher() as launcher:
        frameworks = list(dict.fromkeys(config.framework for _, config, _ in planned))
        print(f"Importing {', '.join(require(f) for f in frameworks)} ...", file=sys.stderr, flush=True)
        launcher.warm(frameworks, planned[0][1].threads)
        for cell, config, workload in planned:
            started = time.time()
            try:
                with shown(config, cell) as progress:
                    rows.results.append(launcher.run(config, workload, progress, started))
            except Unavailable as error:
                rows.reasons[cell] = ("unavailable", str(error))
            except SamestepError as error:
                rows.reasons[cell] = ("failed", str(error))
            print(f"{cell}: {time.time() - started:.1f} s", file=sys.stderr, flush=True)


def _report(rows: Rows, command: str) -> str:
    failures = [(cell, status) for cell, (status, _) in rows.reasons.items()]
    parts = [tables.caption(rows.results)] if rows.results else []
    parts.append(tables.comparison(rows.results, failures))
    parts += [step] if (step := compiled(rows.results)) else []
    notes = [f"{cell} is {status}: {why}" for cell, (status, why) in rows.reasons.items()]
    notes += [
        f"{tables.cell(r)} {'did not take the same step' if r.parity.passed is False else 'was not judged'}: {r.parity.reason}"
        for r in rows.results
        if not r.parity.passed and r.framework != "numpy"
    ]
    parts += ["\n".join(notes)] if notes else []
    parts += [f"Again: {command}", tables.verdict(rows.results)]
    parts += [ranked] if (ranked := ranking(rows.results)) else []
    return "\n\n".join(parts)


if __name__ == "__main__":
    run_command(main)

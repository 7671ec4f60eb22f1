"""Train one workload under many strategies and print one table, with the oracle as its first row.

After an interrupt, the rows that are done are printed, and --resume continues from there.
"""

import argparse
import dataclasses
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.flags import FieldValues, flags
from samestep.common.judging.confounds import ALLOW, check_allowed
from samestep.common.request import AXIS_FLAGS, RunConfig
from samestep.common.techniques import Techniques
from samestep.experiments.cli import github_actions
from samestep.experiments.cli.browser import open_page
from samestep.experiments.cli.command_line import TargetAction, open_engine
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser, add_flags
from samestep.experiments.cli.vary import read_vary
from samestep.experiments.comparing.comparison_request import SHARED, ComparisonConfig, check_bit_equal
from samestep.experiments.printing.formats import add_format, write
from samestep.experiments.report import DEFAULT, begin_page, report_comparison

if TYPE_CHECKING:
    from samestep.experiments.comparing.against import Earlier
    from samestep.experiments.comparing.comparison import Comparison


_ENDINGS = """Exit code, the first that applies: 130 after Ctrl-C; 143, 129 or 131 after SIGTERM, SIGHUP or SIGQUIT; 4 if a row is
not the same step, or not that of --against; 1 if a row failed; 3 if a row that you named is unavailable or not possible, if a
required row was not judged, if --parity was given and no row was judged, or if --against, or --bit-equal, had nothing to compare;
0 otherwise. It is 2 if the request is wrong, or none of the rows that you named is possible: then nothing is started."""
_AGAINST = """compare every row with the same row of an earlier comparison, of a run, or of a directory of runs: the losses of
every step, the bytes, and with enough rounds the speed; the exit code is 4 if a step has changed"""
_BIT_EQUAL = """with --against: every loss, and the final state where both runs have one, must be the same in every bit, not
only within the bounds; the exit code is 4 if one is not, and 3 if equal bits cannot be expected, because versions of Python
or packages, the CPU or the C library differ; the message names them"""
_VARY = """run each row with each value of an option, a technique, a size of the workload, or of devices, batch_size, optimizer,
learning_rate, dtype, seed or threads, as in microbatches=2,4 or width=64,128; a row that does not have it, or sets it in its
cell, stays one row; may be given several times; --devices 1,2,4 is short for --vary devices=1,2,4"""
_RESUME = """continue the comparison in this directory: runs that have a result are not repeated; other flags must be those it was
started with"""
_BESIDE = ("--against", "--allow", "--format", "--on", "--bit-equal", "--open", "--report", "--wide")
"""The flags that `compare.toml` does not hold; the first four take a value."""
_IN_CELL = "write it into its cell, as in torch:hybrid+mesh=pipe=2,tensor=2."
_ON = "start each row as a job of an engine, as in slurm:nodes=2 (mpi, torchrun, ray)"


def main(arguments: Sequence[str]) -> int:
    """Runs every cell and prints the table; returns 0.

    Raises:
        SamestepError: The request is wrong, and nothing was started; or a row failed, missed parity or lacked what it needs.
        KeyboardInterrupt: Ctrl-C ended it; the existing rows have been printed.
    """
    given = vars(_parser().parse_intermixed_args(arguments))
    form, wide, file, directory, opens = (given.pop(name) for name in ("format", "wide", "file", "resume", "open"))
    allow, against, bit_equal, _ = (given.pop(name) for name in ("allow", "against", "bit_equal", "report"))
    beside, target = _find_beside(arguments, directory), given.pop("on")
    _take_rows(given)
    check_bit_equal(bit_equal, against)
    allowed = check_allowed(allow)
    given["vary"] = read_vary(given.pop("vary"))
    out = given.pop("out", None)
    from samestep.experiments.comparing import execution  # here: --help imports no NumPy

    earlier = None if against is None else _load_earlier(Path(against))
    there, has_page = open_engine(target) if target else None, opens or "--report" in beside
    begin = begin_page if has_page else lambda directory: None
    if directory is None:
        asked = execution.ask(None if file is None else Path(file), given)
        comparison = execution.compare(asked, out, executor=there, begin=begin)
    else:
        _check_resumed(directory, out, file)
        comparison = execution.resume(Path(directory), given, executor=there, begin=begin)
    comparison = dataclasses.replace(comparison, beside=tuple(beside)).conclude(allowed, earlier, bit_equal)
    document = comparison.document(_again(arguments, directory, beside), wide)
    print(write(document, form), flush=True)
    github_actions.show(document)
    unwritten = _write_page(comparison, form, opens) if has_page else None
    if comparison.interrupt:
        raise comparison.interrupt
    comparison.require()
    if unwritten:
        raise unwritten
    return 0


def _load_earlier(directory: Path) -> "Earlier":
    from samestep.experiments.comparing.baseline import load_earlier  # here: few comparisons are held against another

    return load_earlier(directory)


def _take_rows(given: FieldValues) -> None:
    """Turns the rows that are named without a flag into `--strategies`.

    Raises:
        ConfigError: Both are given, or `--mesh`.
    """
    if given.pop("mesh") is not None:
        raise ConfigError(f"--mesh is of one row; {_IN_CELL}")
    rows = given.pop("rows")
    if rows and "strategies" in given:
        raise ConfigError(f"'{rows[0]}' and --strategies both name rows; give all of them in one place.")
    given |= {"strategies": ",".join(rows)} if rows else {}


def _check_resumed(directory: str, out: str | None, file: str | None) -> None:
    """Refuses flags whose values a resumed comparison already has.

    Raises:
        ConfigError: One of them is given.
    """
    for flag, value in (("--out", out), ("--file", file)):
        if value is not None:
            raise ConfigError(f"--resume {directory} continues what is there; leave out {flag}.")


def _write_page(comparison: "Comparison", form: str, opens: bool) -> WorkerFailed | None:
    """Writes the page of a comparison. Returns an error instead of raising it, since what the rows did is reported first."""
    try:
        page = report_comparison(comparison)
    except ConfigError as error:
        return WorkerFailed(str(error))
    print(f"Report: {page}", file=None if form == "github" else sys.stderr, flush=True)
    if opens:
        open_page(page)
    return None


def _parser() -> Parser:
    parser = Parser(prog="samestep compare", description=__doc__)
    parser.epilog = _ENDINGS
    parser.examples = (
        "samestep compare torch:ddp tf:mirrored --report",
        "samestep compare torch:ddp --devices 1,2,4 --repeats 5",
        "samestep compare --dtype float64 --parity --against baseline",
    )
    parser.elsewhere = dict.fromkeys(AXIS_FLAGS, f"It is an axis of the mesh of one row; {_IN_CELL}")
    parser.add_argument("rows", nargs="*", metavar="STRATEGY", help="compare only these, as --strategies does")
    parser.add_argument(
        "--wide", action="store_true", help="show every column, one line per row, even if wider than the screen"
    )
    parser.add_argument("--report", action="store_true", help="also write report.html into the comparison's directory")
    parser.add_argument("--open", action="store_true", help="write that page, and open it in the browser")
    add_format(parser)
    group = add_flags(parser, "comparison", ComparisonConfig)
    group.add_argument("--vary", action="append", default=[], metavar="NAME=VALUE,VALUE", help=_VARY)
    group.add_argument(
        "--file", help="take settings that are not given here from this file; a comparison writes its own, compare.toml"
    )
    group.add_argument("--resume", metavar="DIRECTORY", help=_RESUME)
    group.add_argument("--on", action=TargetAction, metavar="ENGINE", help=_ON)
    group.add_argument("--against", metavar="DIRECTORY", help=_AGAINST)
    group.add_argument("--bit-equal", action="store_true", help=_BIT_EQUAL)
    group.add_argument("--allow", action="append", default=[], metavar="NAME,NAME", help=ALLOW)
    add_flags(parser, "runs", RunConfig, [name for name in flags(RunConfig) if name not in (*SHARED, "out")])
    add_flags(parser, "techniques", Techniques)
    parser.add_argument("--mesh", help=argparse.SUPPRESS)
    return parser


def _find_beside(arguments: Sequence[str], resumed: str | None) -> list[str]:
    """Returns the arguments that the file of a comparison does not hold. A page that is there already is written again."""
    found = [a for a, before in _with_previous(arguments) if a.partition("=")[0] in _BESIDE or before in _BESIDE[:4]]
    has_page = resumed is not None and os.path.lexists(Path(resumed) / DEFAULT)
    return [*found, "--report"] if has_page and "--report" not in found else found


def _again(arguments: Sequence[str], resumed: str | None, beside: Sequence[str]) -> str:
    """Returns the command that repeats the comparison, without its output directory."""
    kept = [a for a, before in _with_previous(arguments) if "--out" not in (a.partition("=")[0], before)]
    kept = kept if resumed is None else ["--file", str(Path(resumed) / "compare.toml"), *beside]
    return shlex.join(["samestep", "compare", *kept])


def _with_previous(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(arguments, ["", *arguments], strict=False)


if __name__ == "__main__":
    run_command(main)

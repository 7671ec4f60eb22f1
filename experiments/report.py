"""Write a report on runs and comparisons, on one record, or on two records and their differences.

The page is one file that needs no network: verdicts, a table to sort and filter, and figures. Files that are damaged, or that
belong to another run than those next to them, are listed, and the rest is reported. Exit code: 2 if there is nothing to report or
the file cannot be written; 1 if a directory could not be read; 0 otherwise.
"""

import contextlib
import gc
import html
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError, count
from samestep.common.files.output_file import check_output, save
from samestep.common.files.writing import replacing
from samestep.common.judging.confounds import ALLOW, check_allowed
from samestep.experiments.cli.browser import HELP, open_page
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser

if TYPE_CHECKING:
    from samestep.experiments.comparing.comparison import Comparison

FORMATS = ("html", "github", "csv", "json")

DEFAULT = "report.html"
FIGURES_OF_RECORDS = (
    "--figures draws runs and comparisons, and records are named; leave it out: their page has its figures."
)


def main(arguments: Sequence[str]) -> int:
    """Writes the report; returns 1 if something that was named could not be read.

    Raises:
        ConfigError: There is nothing to report, or the file cannot be written.
    """
    given = _parser().parse_args(arguments)
    if given.open and (given.format != "html" or (given.figures and not given.output)):
        raise ConfigError("--open shows a page, and none is written; leave out --format, or give -o beside --figures.")
    from samestep.experiments.page.loading import load  # here, like the next ones: --help imports no NumPy
    from samestep.experiments.page.page import page
    from samestep.experiments.page.records.record_page import are_records, report_records
    from samestep.experiments.printing.formats import write

    named = given.output or (DEFAULT if given.format == "html" and not given.figures else "")
    paths, out = [Path(path) for path in given.runs], Path(named) if named else None
    if out is not None:
        check_output(out)
    if are_records(paths):
        if given.figures:
            raise ConfigError(FIGURES_OF_RECORDS)
        _write(report_records(paths, given.format), out, given.open)
        return 0
    allowed = check_allowed(given.allow)
    if sys.stderr.isatty():
        print(
            f"Reading {', '.join(given.runs[:3])}{' and others' if given.runs[3:] else ''} ...",
            file=sys.stderr,
            flush=True,
        )
    loaded = load(paths, allowed)
    gc.freeze()  # a thousand results live to the end, so the collector need not scan them over and over
    for problem in loaded.problems:
        print(f"not reported: {problem.place}: {problem.message}", file=sys.stderr)
    if loaded.kept_apart:
        print(loaded.kept_apart, file=sys.stderr)
    if given.figures:
        from samestep.experiments.page.paper.figures import write_figures

        print(f"Figures: {count(write_figures(loaded, Path(given.figures)), 'file')} in {given.figures}")
    if not given.figures or given.output:
        _write(page(loaded) if given.format == "html" else write(loaded.document(), given.format), out, given.open)
    return 1 if loaded.problems else 0


def _write(text: str, out: Path | None, opens: bool) -> None:
    """Writes a report where it was asked for: a page into a file, any other format to stdout, unless a file is named."""
    if out is None:
        print(text)
    else:
        save(text, out)
        print(f"Report: {out}", flush=True)
        if opens:
            open_page(out)


def begin_page(directory: Path) -> None:
    """Writes a page for a comparison that has only begun, unless there is one; it stays if the comparison is killed.

    Args:
        directory: The directory of the comparison. `samestep compare --resume` writes a page that is there again.

    Raises:
        ConfigError: It cannot be written.
    """
    line = html.escape(f"The comparison has not ended. If it was killed: samestep compare --resume {directory}")
    with _told(path := directory / DEFAULT):
        if not os.path.lexists(path):
            with replacing(path) as file:
                file.write(f"<!doctype html><meta charset=utf-8><title>samestep</title><p>{line}\n".encode())


def report_comparison(comparison: "Comparison") -> Path:
    """Writes the page of a comparison into its directory, and returns the file.

    Raises:
        ConfigError: It cannot be written.
    """
    from samestep.experiments.page.loading import loaded_comparison
    from samestep.experiments.page.page import page

    path = (comparison.directory or Path()) / DEFAULT
    with _told(path), replacing(path, is_users=True) as file:
        file.write(page(loaded_comparison(comparison)).encode())
    return path


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Makes a context in which the page of a comparison is written."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); `samestep report -o` takes another.") from None


def _parser() -> Parser:
    parser = Parser(prog="samestep report", description=__doc__)
    parser.examples = (
        "samestep report runs/*",
        "samestep report nightly -o review.html",
        "samestep report runs/one runs/two",
        "samestep report nightly --figures paper/figures",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUNS",
        help="directories of runs or comparisons, or directories that contain some; or one or two records",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help=f"file to write (default: {DEFAULT}; other formats are printed)"
    )
    parser.add_argument(
        "--figures",
        metavar="FOLDER",
        help=(
            "instead of a page, write every figure as SVG and PDF, as wide as a column (3.3 inches) and as a page"
            " (6.9) of a paper"
        ),
    )
    parser.add_argument("--open", action="store_true", help=HELP)
    parser.add_argument("--allow", action="append", default=[], metavar="NAME,NAME", help=ALLOW)
    text = f"one of {', '.join(FORMATS)}: html is a page, github is text for people, the others are for programs"
    parser.add_argument("--format", choices=FORMATS, default="html", metavar="FORMAT", help=f"{text} (default: html)")
    return parser


if __name__ == "__main__":
    run_command(main)

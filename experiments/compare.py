"""Trains one workload under many strategies and prints one table: `samestep compare`."""

import argparse
import dataclasses
import shlex
from collections.abc import Mapping, Sequence

from samestep.common.catalog import framework_info
from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import Scalar, flags, read_fields
from samestep.common.request import FRAMEWORKS, RunConfig, Techniques
from samestep.experiments.arguments import Parser, add_flags, add_format, run_command, split_cells
from samestep.experiments.formats import check_format, write

FRAMEWORKS_COMPARED = [framework for framework in FRAMEWORKS if framework != "numpy"]
SHARED = [name for name, field in flags(RunConfig).items() if field.metadata["compared"]]
"""The fields of a request that all rows of a comparison share."""
_DESCRIPTION = """Train one workload under many strategies and print one table, with the oracle as its first row. Exit code, the
first that applies: 130 after Ctrl-C; 143, 129 or 131 after SIGTERM, SIGHUP or SIGQUIT; 4 if a row is not the same step; 1 if a
row failed; 3 if a row that you named is unavailable, if a required row was not judged, or if --parity was given and no row was
judged; 0 otherwise. The rows that were done before an interrupt are printed."""


def main(arguments: Sequence[str]) -> int:
    """Runs every cell and prints the table; returns 0.

    Raises:
        SamestepError: The request is wrong, and nothing was started; or a row failed, missed or lacked what it had to have.
        KeyboardInterrupt: Ctrl-C ended it; the rows that there are have been printed.
    """
    parser = Parser(prog="samestep compare", allow_abbrev=False, description=_DESCRIPTION)
    parser.add_argument(
        "--framework", help=f"compare only the strategies of this framework: {' or '.join(FRAMEWORKS_COMPARED)}"
    )
    parser.add_argument(
        "--strategies",
        help="compare only these cells, strategies with their options: torch:ddp,tf:mirrored or "
        "torch:pp+microbatches=8+clip_norm=1; a mesh in a cell replaces --devices: torch:hybrid+mesh=pipe=2,tensor=2",
    )
    parser.add_argument(
        "--require",
        help="cells that must be judged, at every step, as in torch:ddp,tf:mirrored; those that --strategies lacks are added",
    )
    parser.add_argument(
        "--wide", action="store_true", help="show every column, one line per row, even if wider than the screen"
    )
    add_format(parser)
    add_flags(parser, "runs", RunConfig, [name for name in flags(RunConfig) if name not in SHARED])
    add_flags(parser, "techniques", Techniques)
    parser.add_argument("--mesh", help=argparse.SUPPRESS)
    given = vars(parser.parse_args(arguments))
    named, framework, required = (given.pop(name) for name in ("strategies", "framework", "require"))
    form, wide = given.pop("format"), given.pop("wide")
    check_format(form)
    if given.pop("mesh") is not None:
        raise ConfigError("--mesh is of one row; write it into its cell, as in torch:hybrid+mesh=pipe=2,tensor=2.")
    if framework not in (None, *FRAMEWORKS_COMPARED):
        raise unknown("framework", framework, FRAMEWORKS_COMPARED)
    if None not in (framework, named):
        raise ConfigError("--framework and --strategies both choose the rows; give one of them.")
    cells = every_cell(framework) if named is None else split_cells("--strategies", named)
    needed = [] if required is None else split_cells("--require", required)
    base = shared_request(given)
    from samestep.experiments.rows import compare  # here: --help imports no NumPy

    comparison = compare(cells, base, named is not None, needed)
    print(write(comparison.document(_again(arguments), wide), form), flush=True)
    if comparison.interrupt:
        raise comparison.interrupt
    comparison.require()
    return 0


def shared_request(given: Mapping[str, Scalar]) -> RunConfig:
    """What all rows of a comparison have in common; two devices unless given: the least that has anything to exchange.

    Args:
        given: Fields of RunConfig and of Techniques.

    Raises:
        ConfigError: A value is wrong.
    """
    return dataclasses.replace(
        read_fields(RunConfig, {"devices": 2, **given}), techniques=read_fields(Techniques, given)
    )


def every_cell(framework: str | None) -> list[str]:
    """The cells of all strategies, or of those of one framework."""
    frameworks = [framework] if framework else FRAMEWORKS_COMPARED
    return [f"{name}:{row.name}" for name in frameworks for row in framework_info(name).rows]


def _again(arguments: Sequence[str]) -> str:
    """The line that repeats the comparison, without the place it was written to."""
    kept = [a for i, a in enumerate(arguments) if a.partition("=")[0] != "--out" and [*arguments, ""][i - 1] != "--out"]
    return shlex.join(["python", "-m", "samestep", "compare", *kept])


if __name__ == "__main__":
    run_command(main)

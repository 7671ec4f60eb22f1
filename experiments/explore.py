"""Writes a page on which a step of two strategies is played side by side: `samestep explore torch:fsdp tf:mirrored`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, SamestepError
from samestep.common.files.output_file import check_output, save
from samestep.experiments.cli.browser import HELP, open_page
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser

if TYPE_CHECKING:
    from samestep.experiments.exploring.grid import Grid
    from samestep.experiments.exploring.measuring import Measured

DEFAULT, DEVICES = "explore.html", 2
_DESCRIPTION = """Write a page that plays a step of two strategies side by side: what each device holds, and which
shards move along which links, with their bytes. On the page you can choose any strategy of both frameworks, and change the
number of devices and the width of the model. The bytes are predicted; for the strategies that you name, a short run measures
them as well. The page is one file that needs no network."""


def main(arguments: Sequence[str]) -> int:
    """Predicts, runs what is named, and writes the page; returns 0.

    Raises:
        ConfigError: An argument is neither a strategy nor a run, or the file cannot be written.
    """
    given = _parser().parse_args(arguments)
    if not 1 <= len(given.named) <= 2:
        raise ConfigError("name one strategy or two, as in samestep explore torch:fsdp tf:mirrored; or one run or two.")
    path = Path(given.output)
    check_output(path)  # before anything is run
    grid, cells, devices, measured = (_of_runs if Path(given.named[0]).is_dir() else _of_rows)(
        given.named, given.predicted
    )
    from samestep.experiments.exploring.explorer import explorer  # here, like those below: --help does without
    from samestep.experiments.exploring.grid import width_of

    start = {
        "left": grid.rows.index(cells[0]),
        "right": grid.rows.index(cells[1]),
        "devices": grid.devices.index(devices),
        "width": grid.widths.index(width_of(grid.base)) if grid.widths else 0,
    }
    save(explorer(grid, start, measured), path)
    print(f"Explorer: {path}")
    if given.open:
        open_page(path)
    return 0


def _of_rows(named: Sequence[str], only_predicted: bool) -> "tuple[Grid, list[Cell], int, dict[Cell, Measured]]":
    """Returns the settings that the page offers, the two rows that it opens with, their devices, and their measurements."""
    from samestep.experiments.exploring.grid import BASE, devices_of, grid_of, predict, width_of

    if missing := [each for each in named if "/" in each.partition("+")[0]]:
        raise ConfigError(
            f"{missing[0]} is no directory of a run; name one that is there, or a strategy, as in torch:ddp."
        )
    cells = [Cell.parse(each) for each in named]
    if not cells[1:]:
        cells.append(_beside(cells[0]))
    for cell in cells:
        cell.check_strategy()
        if taken := [name for name, _ in cell.settings if name in ("devices", "width")]:
            raise ConfigError(f"{cell} sets {taken[0]}, for which the page has a slider; leave it out.")
    own = [devices_of(BASE, cell) for cell in cells if cell.get("mesh")]
    devices, grid = (*own, DEVICES)[0], grid_of(BASE, cells)
    for cell in cells:
        predict(grid, cell, devices, width_of(BASE))
    return grid, cells, devices, {} if only_predicted else _measure(grid, cells, devices)


def _beside(cell: Cell) -> Cell:
    """Returns the row to show next to a cell: its counterpart, or else the reference row of its framework."""
    from samestep.common.catalog import framework_info

    return Cell.parse(cell.info.counterpart or f"{cell.framework}:{framework_info(cell.framework).reference_row}")


def _measure(grid: "Grid", cells: Sequence[Cell], devices: int) -> "dict[Cell, Measured]":
    """Runs both rows. One that cannot run here is only predicted, and a message gives the reason."""
    from samestep.common.runtime.parent.launcher import Launcher
    from samestep.experiments.exploring.grid import width_of
    from samestep.experiments.exploring.measuring import run_row

    found: dict[Cell, Measured] = {}
    with Launcher() as launcher:
        for cell in dict.fromkeys(cells):
            print(f"running {cell} for a few steps", file=sys.stderr, flush=True)
            try:
                found[cell] = run_row(launcher, grid, cell, devices, width_of(grid.base))
            except SamestepError as error:
                print(f"{cell} is only predicted: {error}", file=sys.stderr)
    return found


def _of_runs(named: Sequence[str], only_predicted: bool) -> "tuple[Grid, list[Cell], int, dict[Cell, Measured]]":
    """Returns the same as `_of_rows`, for runs that exist."""
    from samestep.experiments.exploring.grid import grid_of, width_of
    from samestep.experiments.exploring.measuring import read_runs

    runs, base = read_runs([Path(each) for each in named])
    cells = [each.cell for each in runs]
    if not cells[1:]:
        cells.append(_beside(cells[0]))
    grid = grid_of(base, cells, [each.run.num_devices for each in runs])
    width = width_of(base) if grid.widths else None
    measured = {} if only_predicted else {each.cell: each.measured(width) for each in runs}
    return grid, cells, runs[0].run.num_devices, measured


def _parser() -> Parser:
    parser = Parser(prog="samestep explore", description=_DESCRIPTION)
    parser.examples = (
        "samestep explore torch:fsdp tf:mirrored",
        "samestep explore torch:ddp --predicted --open",
        "samestep explore runs/one runs/two --out both.html",
    )
    parser.add_argument(
        "named",
        nargs="*",
        metavar="CELL",
        help=(
            "one or two strategies, as in torch:fsdp, or the directories of one or two runs; a single one is "
            "shown beside its counterpart in the other framework"
        ),
    )
    told = "file to write (default: %(default)s)"
    parser.add_argument("-o", "--out", dest="output", default=DEFAULT, metavar="FILE", help=told)
    parser.add_argument("--predicted", action="store_true", help="run nothing: all bytes are predicted")
    parser.add_argument("--open", action="store_true", help=HELP)
    return parser


if __name__ == "__main__":
    run_command(main)

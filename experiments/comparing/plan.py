"""The cells of a comparison: those that were named, each with every value of what varies."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

from samestep.common.catalog import catalogue
from samestep.common.cell import CELL_FIELDS, Cell, parse_cells, size_names
from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import flags, spell_flag
from samestep.common.request import ORACLE, RunConfig
from samestep.common.techniques import Techniques
from samestep.experiments.comparing.comparison_request import MAX_ROWS, ComparisonConfig, every_cell


@dataclasses.dataclass(frozen=True)
class Plan:
    """The cells of a comparison.

    Attributes:
        cells: The cells in the order of a round, the oracle's first.
        named: The cells that the user named, without which the comparison fails.
        required: The cells that must be judged.
        reference: The cell that the others are compared with, if the user named it.
        repeats: The number of rounds.
    """

    cells: tuple[Cell, ...]
    named: tuple[Cell, ...]
    required: tuple[Cell, ...]
    reference: Cell | None
    repeats: int

    def rounds(self, cell: Cell) -> int:
        """Returns how often a cell is run: the oracle once, since nothing is compared with its speed."""
        return 1 if cell.is_oracle else self.repeats


def make_plan(asked: ComparisonConfig) -> Plan:
    """Lists the cells of a comparison.

    Raises:
        ConfigError: A cell is named twice, the reference is not among them, or nothing that varies applies to any cell.
    """
    given = {"--strategies": asked.strategies, "--require": asked.require}
    strategies, required = ([] if text is None else parse_cells(flag, text) for flag, text in given.items())
    for flag, cells in (("--strategies", strategies), ("--require", required)):
        _check_count(len(cells))
        for cell in cells:
            if cells.count(cell) > 1:
                raise ConfigError(f"{flag} names {cell} twice; name it once, and measure it more often with --repeats.")
    chosen = strategies if asked.strategies is not None else every_cell(asked.framework)
    _check_names(asked, [*chosen, *required])
    # The oracle has no user's model, whose reference is not a row.
    oracle = [Cell.parse(ORACLE)] if asked.base.model is None else []
    every = dict.fromkeys([*oracle, *chosen, *required])
    if is_weak := asked.scaling == "weak":
        _check_weak(asked, list(every))
    expanded = {cell: expand(cell, asked.vary, asked.base) for cell in every}
    expanded = {cell: _scale(cells, asked) if is_weak else cells for cell, cells in expanded.items()}

    def all_of(cells: Sequence[Cell]) -> tuple[Cell, ...]:
        return tuple(dict.fromkeys(itertools.chain.from_iterable(expanded[cell] for cell in cells)))

    _check_count(sum(map(len, expanded.values())))
    reference = None if asked.reference is None else Cell.parse(asked.reference)
    plan = Plan(all_of(list(every)), all_of([*strategies, *required]), all_of(required), reference, asked.repeats)
    trained = [cell for cell in plan.cells if not cell.is_oracle]
    if plan.reference is not None and plan.reference not in trained:
        raise unknown("reference", str(plan.reference), map(str, trained))
    return plan


def _check_count(rows: int) -> None:
    if rows > MAX_ROWS:
        raise ConfigError(f"the comparison has {rows} rows; name fewer cells or vary less, up to {MAX_ROWS} rows.")


def expand(cell: Cell, vary: Mapping[str, tuple[str, ...]], base: RunConfig) -> list[Cell]:
    """Returns the cell with each value of what varies and applies to it; the cell alone if nothing does.

    What a cell sets itself does not vary.

    Args:
        cell: As it was named.
        vary: Name -> its values.
        base: What all rows share.
    """
    axes = {name: values for name, values in vary.items() if cell.can_set(name, base)}
    _check_count(math.prod(map(len, axes.values())))
    return [cell.extended(dict(zip(axes, values, strict=True))) for values in itertools.product(*axes.values())]


def _scale(cells: Sequence[Cell], asked: ComparisonConfig) -> list[Cell]:
    """Returns the cells with a batch that grows with their devices."""
    from samestep.common.workload.table import resolve  # here: --help imports no NumPy

    batch = asked.base.batch_size or resolve(asked.base.workload, asked.base.data).batch_size
    fewest = min(int(devices) for devices in asked.vary["devices"])
    grown = {cell: int(cell.get("devices") or fewest) * batch // fewest for cell in cells}
    return [cell if size == batch else cell.extended({"batch_size": size}) for cell, size in grown.items()]


def _check_weak(asked: ComparisonConfig, cells: Sequence[Cell]) -> None:
    """Refuses weak scaling of one number of devices, and of rows whose batch is given."""
    devices = asked.vary.get("devices", ())
    if len(devices) < 2 or not all(number.isdecimal() and int(number) for number in devices):
        given = f"; --devices {','.join(devices)} is none" if devices else ""
        raise ConfigError(f"--scaling weak takes several numbers of devices, as in --devices 1,2,4{given}.")
    sets = [f"in {cell}" for cell in cells if cell.get("batch_size")]
    sets += ["in --vary"] if "batch_size" in asked.vary else []
    if sets:
        raise ConfigError(
            f"--scaling weak sets the batch size of each row; leave out batch_size {sets[0]}, and give that of the fewest "
            "devices with --batch-size."
        )


def _check_names(asked: ComparisonConfig, cells: Sequence[Cell]) -> None:
    """Refuses to vary what no cell has."""
    for name in asked.vary:
        if any(cell.can_set(name, asked.base) for cell in cells):
            continue
        if name in flags(RunConfig) and name not in CELL_FIELDS:
            where = "write it into cells" if name == "mesh" else f"give one {spell_flag(name)}"
            raise ConfigError(f"--vary {name}: rows do not differ in it; {where}.")
        if owners := [f"{framework}:{row.name}" for framework, row in catalogue() if name in flags(row.options)]:
            raise ConfigError(f"--vary {name}: it is an option of {', '.join(owners)}, and of no row here.")
        options = dict.fromkeys(option for cell in cells for option in flags(cell.info.options))
        known = [*CELL_FIELDS, *flags(Techniques), *size_names(asked.base), *options]
        if name not in known:
            raise unknown("name in --vary", name, known)
        raise ConfigError(f"--vary {name}: no row can differ in it; each sets it in its cell, or has one value only.")

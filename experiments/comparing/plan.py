"""The cells of a comparison: the named ones, each with every value that varies; and the request of each cell."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from samestep.common.catalog import catalogue
from samestep.common.cell import CELL_FIELDS, Cell, parse_cells, size_names
from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import flags, spell_flag
from samestep.common.mesh import Mesh
from samestep.common.request import ORACLE, RunConfig
from samestep.common.runtime.records import RunResult
from samestep.common.techniques import Techniques
from samestep.common.techniques.used import counts_devices
from samestep.experiments.comparing import comparison_file
from samestep.experiments.comparing.comparison_request import MAX_ROWS, ComparisonConfig, every_cell

_ELSEWHERE = ("out", "described")
"""The fields of a request that hold paths, which may have changed since."""
_FILLED_IN = ("devices", "mesh", "steps", "batch_size", "optimizer", "learning_rate", "decay_steps")
"""The fields that are taken from the workload, or from another field, if they were not given."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The cells of a comparison.

    Attributes:
        asked: The request of the comparison.
        cells: The cells in the order of a round, the oracle's first.
        named: The cells that the user named, without which the comparison fails.
        required: The cells that must be judged.
    """

    asked: ComparisonConfig
    cells: tuple[Cell, ...]
    named: tuple[Cell, ...]
    required: tuple[Cell, ...]

    def rounds(self, cell: Cell) -> int:
        """Returns how often a cell is run: the oracle once, since nothing is compared with its speed."""
        return 1 if cell.is_oracle else self.asked.repeats


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
    plan = Plan(asked, all_of(list(every)), all_of([*strategies, *required]), all_of(required))
    trained = [str(cell) for cell in plan.cells if not cell.is_oracle]
    if asked.reference is not None and asked.reference not in trained:
        raise unknown("reference", asked.reference, trained)
    return plan


def _check_count(rows: int) -> None:
    if rows > MAX_ROWS:
        raise ConfigError(f"the comparison has {rows} rows; name fewer cells or vary less, up to {MAX_ROWS} rows.")


def expand(cell: Cell, vary: Mapping[str, tuple[str, ...]], base: RunConfig) -> list[Cell]:
    """Returns the cell with each value of the varied names that apply to it; the cell alone if none applies.

    What a cell sets itself does not vary.

    Args:
        cell: The cell as the user named it.
        vary: Name -> its values.
        base: The request that all rows share.
    """
    axes = {name: values for name, values in vary.items() if cell.can_set(name, base)}
    _check_count(math.prod(map(len, axes.values())))
    return [cell.extended(dict(zip(axes, values, strict=True))) for values in itertools.product(*axes.values())]


def _scale(cells: Sequence[Cell], asked: ComparisonConfig) -> list[Cell]:
    """Returns the cells, each with a batch in proportion to its devices."""
    from samestep.common.workload.table import resolve  # here: --help imports no NumPy

    batch = asked.base.batch_size or resolve(asked.base.workload, asked.base.data).batch_size
    fewest = min(int(devices) for devices in asked.vary["devices"])
    grown = {cell: int(cell.get("devices") or fewest) * batch // fewest for cell in cells}
    return [cell if size == batch else cell.extended({"batch_size": size}) for cell, size in grown.items()]


def _check_weak(asked: ComparisonConfig, cells: Sequence[Cell]) -> None:
    """Refuses weak scaling with a single number of devices, or of rows with their own batch size."""
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
    """Refuses to vary a name that no cell has."""
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


def request_of(cell: Cell, plan: Plan) -> RunConfig:
    """Makes the request of a cell. Strategies for one device get one, and those that were not named get a dtype they support.

    Args:
        cell: The cell of the comparison.
        plan: The plan of the comparison.

    Raises:
        ConfigError: There is no such option, or no such value of it.
    """
    base, info = plan.asked.base, cell.info
    config = cell.apply_to(base)
    possible = config.dtype in info.dtypes or (cell in plan.named and not cell.is_oracle)
    has_devices = bool(info.axes) or (cell.is_oracle and bool(counts_devices(config.techniques)))
    return dataclasses.replace(
        config,
        devices=config.devices if cell.get("devices") else None if config.mesh else base.devices if has_devices else 1,
        dtype=config.dtype if possible else info.dtypes[0],
        threads=1 if cell.is_oracle else config.threads,
        techniques=config.techniques.of_reference() if cell.is_oracle else config.techniques,
        parity=True if cell in plan.required else config.parity,
    )


def refuse_other(run: Path, result: RunResult, wanted: RunConfig) -> None:
    """Refuses a result that is not the cell's, because `compare.toml` was changed or directories were moved.

    Args:
        run: The directory of the result.
        result: The result that it holds.
        wanted: The request of the cell, its defaults filled in or not.

    Raises:
        ConfigError: The result belongs to another request; the message names the difference.
    """
    for name, there, asked in _differences(result.config, wanted):
        raise ConfigError(
            f"{run} holds another run than {comparison_file.NAME} asks for: {spell_flag(name)} is {there} there, and "
            f"{asked} here: {result.command}; move it away, and --resume measures it again."
        )


def _differences(config: RunConfig, wanted: RunConfig) -> Iterator[tuple[str, object, object]]:
    """Yields the fields in which a complete request differs from the wanted one, each with both values."""
    mine, theirs = _plain(config), _plain(wanted)
    for name, asked in theirs.items():
        is_open = asked is None and name in _FILLED_IN
        is_replaced = name == "workload" and wanted.model is not None
        if not (is_open or is_replaced) and name in mine and mine[name] != asked:
            yield name, mine[name], asked


def _plain(config: RunConfig) -> Mapping[str, object]:
    """Returns all that a request sets, by name; the axes of a mesh are sorted."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    mesh = None if config.mesh is None else str(Mesh(tuple(sorted(Mesh.parse(config.mesh).axes))))
    nested = {**config.options, **dataclasses.asdict(config.techniques)}
    left_out = (*_ELSEWHERE, "options", "techniques")
    return {name: value for name, value in values.items() if name not in left_out} | nested | {"mesh": mesh}

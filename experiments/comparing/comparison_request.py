"""The request of a comparison, in the same form whether it comes from flags, from `compare.toml` or from Python."""

import dataclasses
from collections.abc import Mapping, Sequence

from samestep.common.catalog import framework_info
from samestep.common.cell import Cell, parse_cells
from samestep.common.errors import ConfigError
from samestep.common.flags import Scalar, flag, flags, read_fields, spell_flag
from samestep.common.frameworks import FRAMEWORKS, ORACLE_FRAMEWORK
from samestep.common.request import RunConfig
from samestep.common.techniques import Techniques
from samestep.experiments.cli.vary import MAX_VALUES, split_values

FRAMEWORKS_COMPARED = [framework for framework in FRAMEWORKS if framework != ORACLE_FRAMEWORK]
SHARED = [
    name for name, field in flags(RunConfig).items() if field.metadata["compared"] and not field.metadata["place"]
]
"""The fields of a request that all rows of a comparison share."""
MAX_REPEATS = 10_000
"""The most rounds: a day has 86,400 seconds, and the shortest run takes some tenths of one."""
MAX_ROWS = MAX_VALUES
"""The most cells of a comparison, and the most values of a name: each is a run, and is checked before the first one starts."""
Given = Mapping[str, object]
"""Name of a flag -> what was given: text, or lists and numbers from a file or from Python."""


@dataclasses.dataclass(frozen=True)
class ComparisonConfig:
    """The request of a comparison. It is kept in the directory of the comparison, as `compare.toml`.

    Attributes:
        vary: Name -> its values. Each row that has the name is run with each value.
        base: The request that all rows share.
    """

    framework: str | None = flag(None, "compare only the strategies of this framework", choices=FRAMEWORKS_COMPARED)
    strategies: str | None = flag(
        None,
        "compare only these cells, strategies with their options: torch:ddp,tf:mirrored or "
        "torch:pp+microbatches=8+clip_norm=1; a mesh in a cell replaces --devices: torch:hybrid+mesh=pipe=2,tensor=2",
    )
    require: str | None = flag(
        None,
        "cells that must be judged at every step, as in torch:ddp,tf:mirrored; those missing in --strategies are added",
    )
    reference: str | None = flag(
        None, "the row that the others are compared with (default: the first that trains, after the oracle)"
    )
    repeats: int = flag(
        1,
        "how often each row is measured: in rounds, each row once per round, in fresh processes; the oracle runs once",
        least=1,
        most=MAX_REPEATS,
    )
    scaling: str = flag(
        "strong",
        "with several numbers of devices: strong keeps the global batch, weak keeps the batch of each device as it is on the "
        "fewest devices",
        choices=("strong", "weak"),
    )
    vary: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    base: RunConfig = dataclasses.field(default_factory=RunConfig)


def merge(first: Given, second: Given) -> Given:
    """Joins what was given in two places.

    Args:
        first: The settings of a file.
        second: The settings of the command line, which take precedence.
    """
    one, other = _spelled(first), _spelled(second)
    return {**one, **other, "vary": {**_axes(one), **_axes(other)}}


def describe(given: Given) -> ComparisonConfig:
    """Reads what was given for a comparison.

    Args:
        given: The values, keyed by the names of the flags; `vary` maps names to values.

    Raises:
        ConfigError: A value is wrong, or two contradict each other.
    """
    spelled = _spelled(given)
    vary = _axes(spelled)
    values: dict[str, Scalar] = {name: value for name, value in spelled.items() if name != "vary"}  # pyrefly: ignore
    for name in vary:
        if name in values:
            raise ConfigError(f"--vary {name} and {spell_flag(name)} both set {name}; give it once.")
    shared = {name: value for name, value in values.items() if name not in flags(ComparisonConfig)}
    asked = dataclasses.replace(read_fields(ComparisonConfig, values), vary=vary)
    base = dataclasses.replace(
        read_fields(RunConfig, {"devices": 2, **shared}), techniques=read_fields(Techniques, shared)
    )
    if None not in (asked.framework, asked.strategies):
        raise ConfigError("--framework and --strategies both choose the rows; give one of them.")
    if asked.require is not None and base.parity is False:
        raise ConfigError("--require judges what --no-parity leaves unjudged; give one of them.")
    return dataclasses.replace(
        asked,
        base=base,
        strategies=_complete("--strategies", asked.strategies),
        require=_complete("--require", asked.require),
        reference=asked.reference and str(Cell.parse(asked.reference)),
    )


def check_bit_equal(bit_equal: bool, against: object) -> None:
    """Refuses to require equal bits without an earlier comparison.

    Args:
        bit_equal: Whether equal bits are required.
        against: The earlier comparison; None if it was not given.

    Raises:
        ConfigError: `against` is None although equal bits are required.
    """
    if bit_equal and against is None:
        raise ConfigError("--bit-equal compares with an earlier comparison; name it with --against DIRECTORY.")


def _spelled(given: Given) -> dict[str, object]:
    """Returns the settings as the command line spells them: lists as text, and several numbers of devices under `vary`."""
    values = {name: value if name == "vary" else _text(value) for name, value in given.items() if value is not None}
    if "," in str(values.get("devices", "")):
        axes = _axes(values)
        if "devices" in axes:
            raise ConfigError("--vary devices and --devices both set devices; give it once.")
        values["vary"] = {"devices": values.pop("devices"), **axes}
    return values


def _text(value: object) -> object:
    if not isinstance(value, list | tuple):
        return value
    return ",".join(str(each).lower() if isinstance(each, bool) else str(each) for each in value)


def _axes(given: Given) -> dict[str, tuple[str, ...]]:
    """Returns the names that vary, with their values."""
    vary = given.get("vary", {})
    if not isinstance(vary, Mapping):
        raise ConfigError(f"vary is {vary!r}, not names with their values, as in microbatches = [2, 4].")
    return {str(name).replace("-", "_"): split_values(str(name), str(_text(values))) for name, values in vary.items()}


def _complete(flag: str, text: str | None) -> str | None:
    return None if text is None else ",".join(map(str, parse_cells(flag, text)))


def every_cell(framework: str | None) -> list[Cell]:
    """Returns the cells of all strategies, or of those of one framework."""
    frameworks: Sequence[str] = [framework] if framework else FRAMEWORKS_COMPARED
    return [Cell(framework, name) for framework in frameworks for name in framework_info(framework).strategies]

"""The numbers of a result as columns for programs, named as in `result.json`, and as a data frame."""

import dataclasses
import functools
import importlib
import itertools
import types
import typing
from collections.abc import Mapping, Sequence

from samestep.common.errors import Unavailable, unknown
from samestep.common.flags import Scalar
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.quantities import QUANTITIES
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.printing.columns import misses

if typing.TYPE_CHECKING:
    import pandas
    import polars  # pyrefly: ignore

LIBRARIES = ("pandas", "polars")
_LEFT_OUT = ("config", "status")
"""Fields of a result that are not columns: `command` repeats the configuration, and the row has its own status."""


def figures(result: RunResult | None) -> dict[str, Scalar]:
    """Returns the columns of a result: its plain fields, those of its parts, and every quantity; all None without a result."""
    row = MeasuredRow.of(result) if result else None
    found: dict[str, Scalar] = _plain_fields(RunResult, result)
    for quantity in QUANTITIES:
        found.setdefault(quantity.key, quantity.measured(row) if row else None)
        if quantity.in_ledger is not None:
            found.setdefault(f"predicted_{quantity.key}", quantity.predicted(result) if result else None)
    missed = ", ".join(f"{name} {error}" for name, error in misses(result).items()) if result else None
    return found | {"missed_predictions": missed}


_hints = functools.cache(typing.get_type_hints)


def _plain_fields(kind: type, value: object, prefix: str = "") -> dict[str, Scalar]:
    """Returns the numbers and words of a dataclass and of the dataclasses in it, whose names become prefixes: `parity_steps`."""
    columns = {}
    for name, declared in _hints(kind).items():
        union = isinstance(declared, types.UnionType)
        kinds = {each for each in (typing.get_args(declared) if union else [declared]) if each is not types.NoneType}
        inner = None if value is None else getattr(value, name)
        if name in _LEFT_OUT:
            continue
        if kinds <= {str, int, float, bool}:
            columns[prefix + name] = inner
        elif dataclasses.is_dataclass(part := kinds.pop()):
            columns |= _plain_fields(part, inner, f"{prefix}{name}_")
    return columns


def frame(rows: Sequence[Mapping[str, object]], library: str) -> "pandas.DataFrame | polars.DataFrame":
    """Makes a data frame with all columns that any of the rows has; missing values are None.

    Args:
        rows: The rows, as names and values.
        library: One of `LIBRARIES`.

    Raises:
        ConfigError: The library is not supported.
        Unavailable: The library is not installed.
    """
    if library not in LIBRARIES:
        raise unknown("library", library, LIBRARIES)
    try:
        made = importlib.import_module(library).DataFrame
    except ImportError:
        raise Unavailable(f"a data frame needs {library}: pip install {library}") from None
    return made({name: [row.get(name) for row in rows] for name in dict.fromkeys(itertools.chain(*rows))})

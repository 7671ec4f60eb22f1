"""Rows of plain values as a data frame, of pandas or of polars."""

import importlib
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from samestep.common.errors import Unavailable, unknown

if TYPE_CHECKING:
    import pandas
    import polars  # pyrefly: ignore

LIBRARIES = ("pandas", "polars")


def frame(rows: Sequence[Mapping[str, object]], library: str) -> "pandas.DataFrame | polars.DataFrame":
    """Makes a data frame with all columns that any of the rows has; what a row lacks is None.

    Args:
        rows: The rows, as names and values.
        library: One of `LIBRARIES`.

    Raises:
        ConfigError: It is another one.
        Unavailable: It is not installed.
    """
    if library not in LIBRARIES:
        raise unknown("library", library, LIBRARIES)
    try:
        made = importlib.import_module(library).DataFrame
    except ImportError:
        raise Unavailable(f"a data frame needs {library}: pip install {library}") from None
    return made({name: [row.get(name) for row in rows] for name in dict.fromkeys(itertools.chain(*rows))})

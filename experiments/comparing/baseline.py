"""Reads the rows of an earlier comparison, from any kind of directory."""

import os
from collections.abc import Sequence
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.runtime.records import RunResult, load_result
from samestep.experiments.comparing import comparison_file, stored
from samestep.experiments.comparing.against import Earlier
from samestep.experiments.comparing.row import NOT_RUN
from samestep.experiments.comparing.row_pairs import request_of
from samestep.experiments.comparing.speeds import Rounds
from samestep.experiments.printing.text import sharing

_DEEPEST = 2
"""The depth of run directories: directly in a comparison of one round, or in a folder for each cell with several rounds."""


def load_earlier(directory: Path) -> Earlier:
    """Reads an earlier comparison.

    Args:
        directory: The directory of a comparison, of one run, or of several.

    Raises:
        ConfigError: It holds no result, or a damaged one.
    """
    if os.path.exists(directory / comparison_file.NAME):  # no error for a long path
        loaded = stored.load(directory)
        if lost := [row.cell for row in loaded.rows if row.status == NOT_RUN]:
            raise ConfigError(f"--against {directory} has no result of {', '.join(lost)}: {loaded.missing}")
        rows = {row.cell: row.results for row in loaded.rows if row.results}
    else:
        places = ["/".join(["*"] * depth + ["result.json"]) for depth in range(_DEEPEST + 1)]
        deep = places if os.path.isdir(directory) else []  # no error for a long path
        found = sorted(path.parent for place in deep for path in directory.glob(place))
        rows = _group([load_result(path) for path in found])
    if not rows:
        raise ConfigError(
            f"--against {directory} holds no finished run; name the directory of a comparison, of a run, or of several."
        )
    return Earlier(directory, rows)


def _group(results: Sequence[RunResult]) -> dict[str, Rounds]:
    """Makes one row of the runs of one request."""
    rows: dict[str, Rounds] = {}
    for group in sharing((request_of(result), result) for result in results).values():
        name = str(Cell.of(group[0].config))
        taken = sum(other.partition(" #")[0] == name for other in rows)
        rows[name if not taken else f"{name} #{taken + 1}"] = group
    return rows

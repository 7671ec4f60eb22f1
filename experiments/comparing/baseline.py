"""The rows of an earlier comparison: how they are read, from any kind of directory, and which of today's they belong to."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.files.access import check_open
from samestep.common.runtime.records import RunResult, load_result
from samestep.experiments.comparing import comparison_file, stored
from samestep.experiments.comparing.row import NOT_RUN
from samestep.experiments.comparing.speeds import Rounds
from samestep.experiments.printing.text import sharing

_DEEPEST = 2
"""The greatest depth of run directories: a comparison has a folder for each cell, with a folder for each round in it."""


@dataclasses.dataclass(frozen=True)
class Earlier:
    """An earlier comparison.

    Attributes:
        directory: Where it is.
        rows: The rows with a result, by their cells.
    """

    directory: Path
    rows: Mapping[str, Rounds]


def load_earlier(directory: Path) -> Earlier:
    """Reads an earlier comparison.

    Args:
        directory: The directory of a comparison, of one run, or of several.

    Raises:
        ConfigError: It holds no result, or a damaged one.
    """
    check_open(directory)
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
    """Groups the runs of the same request into rows."""
    rows: dict[str, Rounds] = {}
    for group in sharing((request_of(result), result) for result in results).values():
        name = str(Cell.of(group[0].config))
        taken = sum(other.partition(" #")[0] == name for other in rows)
        rows[name if not taken else f"{name} #{taken + 1}"] = group
    return rows


def match(now: Mapping[str, Rounds], then: Mapping[str, Rounds]) -> dict[str, str]:
    """Finds the earlier row of each of today's rows.

    It is the one of the same request, in any spelling. If there is none, it is the only other row of the same strategy, so the
    differences can be named.

    Args:
        now: Today's rows, by their cells.
        then: The earlier rows.

    Returns:
        Today's cell -> the earlier one. Rows that only one side has are left out.
    """
    pairs = {}
    for exact in (True, False):
        for name, row in now.items():
            open_rows = {other: rounds for other, rounds in then.items() if other not in pairs.values()}
            if name not in pairs and (found := _find(row[0], open_rows, exact)):
                pairs[name] = found
    return {name: pairs[name] for name in now if name in pairs}


def _find(result: RunResult, rows: Mapping[str, Rounds], exact: bool) -> str | None:
    """Returns the row of the same request; without `exact`, the only row of the same strategy."""
    key = request_of if exact else _strategy_of
    found = [name for name, rounds in rows.items() if key(rounds[0]) == key(result)]
    return found[0] if found and (exact or len(found) == 1) else None


def _strategy_of(result: RunResult) -> tuple[object, ...]:
    return result.framework, result.strategy


def request_of(result: RunResult) -> tuple[object, ...]:
    """Returns the part of the request that decides what a step is, and the number of threads."""
    config = result.config
    return (
        *_strategy_of(result),
        tuple(sorted(config.options.items())),
        *(config.techniques, config.learning_rate, config.threads, result.mesh, result.workload, result.optimizer),
        *(result.global_batch_size, result.dtype, result.seed, result.first_step),
    )

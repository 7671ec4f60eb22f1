"""Finds the rows of an earlier comparison, and which of today's they belong to."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.runtime.records import RunResult, load_result
from samestep.experiments import comparison_file, stored
from samestep.experiments.columns import cell

_DEEPEST = 2
"""A comparison of one round has run directories below it, one of several rounds has a folder for each cell between."""
Rounds = Sequence[RunResult]
"""The results of one row, one a round."""


def load_earlier(directory: Path) -> dict[str, Rounds]:
    """Reads the rows of an earlier comparison that have a result, by their cells.

    Args:
        directory: Of a comparison, of one run, or of several.

    Raises:
        ConfigError: It holds no result, or a damaged one.
    """
    if (directory / comparison_file.NAME).exists():
        rows = {row.cell: row.results for row in stored.load(directory).rows if row.results}
    else:
        places = ["/".join(["*"] * depth + ["result.json"]) for depth in range(_DEEPEST + 1)]
        found = sorted(path.parent for place in places for path in directory.glob(place))
        rows = _group([load_result(path) for path in found])
    if not rows:
        raise ConfigError(
            f"--against {directory} holds no finished run; name the directory of a comparison, of a run, or of several."
        )
    return rows


def _group(results: Sequence[RunResult]) -> dict[str, Rounds]:
    """Makes one row of the runs of one request."""
    groups: dict[tuple[object, ...], list[RunResult]] = {}
    for result in results:
        groups.setdefault(_request(result), []).append(result)
    rows: dict[str, Rounds] = {}
    for group in groups.values():
        name = cell(group[0]).removesuffix(" (emulated)")
        taken = sum(other.partition(" #")[0] == name for other in rows)
        rows[name if not taken else f"{name} #{taken + 1}"] = group
    return rows


def match(now: Mapping[str, Rounds], then: Mapping[str, Rounds]) -> dict[str, str]:
    """Finds the earlier row of each of today's rows.

    It is the one of the same request, spelled as it may be. If there is none, it is the only other row of the same strategy:
    then what differs is worth being named.

    Args:
        now: Today's rows, by their cells.
        then: The earlier ones.

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
    """The row of the same request; or, not exactly, the only row of the same strategy."""
    key = _request if exact else _strategy
    found = [name for name, rounds in rows.items() if key(rounds[0]) == key(result)]
    return found[0] if found and (exact or len(found) == 1) else None


def _strategy(result: RunResult) -> tuple[object, ...]:
    return result.framework, result.strategy


def _request(result: RunResult) -> tuple[object, ...]:
    """What was asked for, as far as it decides what a step is."""
    config = result.config
    return (
        *_strategy(result),
        tuple(sorted(config.options.items())),
        config.techniques,
        result.mesh,
        result.workload_digest,
        result.optimizer,
        config.learning_rate,
        result.global_batch_size,
        result.dtype,
        result.seed,
        result.first_step,
        config.threads,
    )

"""Finds which rows of two comparisons belong together."""

from collections.abc import Mapping

from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.speeds import Rounds


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
    """Returns the row of the same request; or, not exactly, the only row of the same strategy."""
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

"""The bytes of a run, each as measured and as predicted, and which predictions miss."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from samestep.common.ledger import Footprint
from samestep.common.runtime.records import RunResult

Measure = Callable[[RunResult], float | None]
"""A quantity of a result; None where it is not known."""
MOST = 0.05
"""By so much of what was measured a prediction may be off before the tables say so."""
MARK = "!"
"""Behind a prediction that is off by more."""


def _most_activations(rows: Iterable[Footprint]) -> float | None:
    """Of the device that keeps most; None if it is not known of any."""
    return max((row.activations_bytes for row in rows if row.activations_bytes is not None), default=None)


BYTES: Mapping[str, tuple[Measure, Measure]] = {
    "state": (
        lambda result: max(row.state_bytes for row in result.processes),
        lambda result: max(row.state_bytes for row in result.predicted.footprints),
    ),
    "sent": (
        lambda result: sum(row.sent_bytes_per_step for row in result.processes),
        lambda result: result.predicted.sent_bytes_per_step,
    ),
    "activations": (
        lambda result: _most_activations(result.processes),
        lambda result: _most_activations(result.predicted.footprints),
    ),
}
"""Quantity -> how it is measured and how it is predicted: of the device that has most, or summed over all processes."""


def misses(result: RunResult) -> dict[str, str]:
    """Which quantities were predicted wrongly, each with how far what was measured is from it, as in "+12 %".

    What a process did not count may be what is missing: then only what is too much is a miss.
    """
    found = {}
    for name, (measure, predict) in BYTES.items() if not result.compiled and result.processes else ():
        measured, predicted = measure(result), predict(result)
        if measured is None or predicted is None or abs(measured - predicted) <= MOST * measured:
            continue
        if name == "sent" and result.uncounted and measured < predicted:
            continue
        found[name] = f"{100 * (measured / predicted - 1):+,.0f} %" if predicted else "none predicted"
    return found


def mark(result: RunResult, name: str) -> str:
    """What stands behind the prediction of a quantity: `MARK` if it misses, else nothing.

    Args:
        result: Of the row.
        name: Of the quantity.
    """
    return MARK if name in misses(result) else ""


def explain_misses(results: Sequence[RunResult], name: Callable[[RunResult], str]) -> list[str]:
    """One line that says which predictions miss, and by how much; none if all hold.

    Args:
        results: Of the rows.
        name: How a row is called.
    """
    told = [
        f"{name(result)} {', '.join(f'{quantity} {error}' for quantity, error in found.items())}"
        for result in results
        if (found := misses(result))
    ]
    if not told:
        return []
    return [f"{MARK} the prediction is more than {MOST:.0%} off; measured against predicted: {'; '.join(told)}"]

"""Which predictions of a run miss what was measured."""

from collections.abc import Callable, Sequence

from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.measures.quantity import Quantity
from samestep.experiments.comparing.quantities import QUANTITIES

MOST = 0.05
"""By so much of what was measured a prediction may be off before the tables say so."""
MARK = "!"
"""Behind a prediction that is off by more."""


def misses(result: RunResult) -> dict[str, str]:
    """Returns which quantities were predicted wrongly, each with how far what was measured is from it, as in "+12 %"."""
    return {quantity.name: far for quantity in QUANTITIES if (far := _find_miss(result, quantity))}


def mark(result: RunResult, quantity: Quantity) -> str:
    """Returns what stands behind the prediction of a quantity: `MARK` if it misses, else nothing.

    Args:
        result: The result of the row.
        quantity: The quantity.
    """
    return MARK if _find_miss(result, quantity) else ""


def _find_miss(result: RunResult, quantity: Quantity) -> str:
    """Returns how far what was measured is from a prediction that misses; "" if it holds, or if there is none.

    What a process did not count may be what is missing: then only what is too much is a miss.
    """
    if quantity.in_ledger is None or result.compiled or not result.processes:
        return ""
    measured, predicted = quantity.in_ledger(result.measured), quantity.predicted(result)
    if measured is None or predicted is None or abs(measured - predicted) <= MOST * measured:
        return ""
    if quantity.is_lower_bound(result) and measured < predicted:
        return ""
    return f"{100 * (measured / predicted - 1):+,.0f} %" if predicted else "(none was predicted)"


def explain_misses(results: Sequence[RunResult], name: Callable[[RunResult], str]) -> list[str]:
    """Returns one line that says which predictions miss, and by how much; none if all hold.

    Args:
        results: The results of the rows.
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

"""Whether a result can be one: of the right types everywhere, it may still hold what no run measures."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from samestep.common.request import MAX_PREDICTED_DEVICES

if TYPE_CHECKING:
    from samestep.common.runtime.records import RunResult

MOST_WHOLE = 2**63
"""Beyond any count of bytes. Whole numbers of JSON have no limit, and those of what reads them do."""
MOST_REAL = 1e100
_COMPLETE = ("mesh", "steps", "batch_size", "optimizer", "learning_rate")
"""What a request has once it was parsed."""
_RULES: Mapping[str, Callable[["RunResult"], object]] = {
    "it predicts no device": lambda r: r.predicted.footprints,
    "config is not complete": lambda r: None not in [getattr(r.config, name) for name in _COMPLETE],
    "machine has no processor": lambda r: "cpu" in r.machine,
    "examples_per_second is not positive": lambda r: r.examples_per_second is None or r.examples_per_second.median > 0,
    "it predicts more devices than there are": lambda r: 0 < _devices(r) <= MAX_PREDICTED_DEVICES,
    "parity has a deviation below 0": lambda r: (r.parity.max_relative_loss or 0) >= 0,
    "parity has a bound that is not above 0": lambda r: r.parity.loss_bound is None or r.parity.loss_bound > 0,
}
"""What must be so, by what is said otherwise."""


def _devices(result: "RunResult") -> int:
    counts = [footprint.count for footprint in result.predicted.footprints]
    return sum(counts) if min(counts) > 0 else 0


def why_impossible(result: "RunResult") -> str:
    """Why no run has such a result; "" if one may."""
    return next((said for said, holds in _RULES.items() if not holds(result)), "")


def find_huge_number(values: object) -> str:
    """Finds a number in parsed JSON that is larger than anything that is counted.

    Returns:
        Where it is and what it is, as a clause; "" if there is none.
    """
    left: list[tuple[str, object]] = [("", values)]
    while left:
        place, value = left.pop()
        if isinstance(value, dict):
            parts = ((name, each) for name, each in value.items() if each is not None and type(each) is not str)
            left += [(f"{place}.{name}" if place else str(name), each) for name, each in parts]
        elif isinstance(value, list):
            left += [(place, each) for each in value if type(each) is not float or abs(each) >= MOST_REAL]
        elif isinstance(value, float) and abs(value) >= MOST_REAL:
            return f"{place} is {value}, and no measured number is"
        elif isinstance(value, int) and abs(value) >= MOST_WHOLE:
            return f"{place} is larger than 2^{math.log2(MOST_WHOLE):.0f}"
    return ""

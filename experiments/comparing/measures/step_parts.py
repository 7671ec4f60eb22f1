"""The parts of a step, as quantities."""

from samestep.common.runtime.step_parts import PARTS
from samestep.experiments.comparing.measures.quantity import Quantity

_PARTS = {
    "computing": "operators ran, those of the update included where they cannot be told apart",
    "update": "operators of the update ran",
    "waiting": "blocked until an exchange is done, or until another process has caught up",
    "idle": "ready to run but without a core, or blocked in a run of one process",
    "Python": "on a core but in no operator: Python and the framework's bookkeeping",
}
STEP_PARTS = tuple(
    Quantity(
        name=name,
        unit="s",
        meaning=meaning,
        key=f"step_parts_{part}",
        of_row=lambda row, part=part: getattr(row.result.step_parts, part, None),
        in_terminal=False,
    )
    for part, (name, meaning) in zip(PARTS, _PARTS.items(), strict=True)
)
"""How the seconds of the median step are spent; together they are that step."""
NO_PARTS = "nobody measured the parts of its step"

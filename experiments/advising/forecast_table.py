"""The table of a forecast: one line for each strategy."""

import functools
from collections.abc import Callable, Sequence

from samestep.common.ledger import STATE_OF_A_DEVICE
from samestep.common.memory import ACTIVATIONS, GATHERED
from samestep.experiments.advising.prediction import Prediction
from samestep.experiments.printing.column_table import Column, fit, meanings, table
from samestep.experiments.printing.text import bullets, common_unit, in_unit, screen_width, size


def forecast_table(rows: Sequence[Prediction], memory: int | None, width: int | None = None) -> str:
    """Returns a table with a line for each strategy: what the fullest device holds and needs, what is sent, and whether it fits.

    Args:
        rows: The predictions.
        memory: The bytes of a device, if they were given.
        width: The characters of a line; those of the screen, unless given.
    """
    width = width or screen_width()
    shown = fit(_columns(rows, memory), rows, width)
    return f"{table(shown, rows, width)}\n\n{bullets(meanings(shown), width)}"


def _columns(rows: Sequence[Prediction], given: int | None) -> tuple[Column[Prediction], ...]:
    memory = given or 0
    fits = Column[Prediction](
        "fits",
        lambda row: row.fits(memory),
        f"whether that is at most {size(memory)}; without activations: only if these, too large or not predicted, are left out",
    )
    are_known = any(ACTIVATIONS.held(row.fullest) is not None for row in rows)
    of = functools.partial(_in_bytes, rows)
    return (
        Column("strategy", lambda row: row.cell),
        Column("mesh", lambda row: str(row.run.mesh), drop_priority=5),
        of("state", lambda row: row.ledger.state_bytes, STATE_OF_A_DEVICE),
        of("(textbook)", lambda row: row.textbook("state"), "(by the textbook)", drop_priority=4, is_detail=True),
        of("gathered", lambda row: GATHERED.held(row.fullest), _GATHERED, 3),
        of("activations", lambda row: ACTIVATIONS.held(row.fullest), _ACTIVATIONS, 3),
        of("needed", lambda row: row.needed_bytes, _NEEDED if are_known else f"{_NEEDED}; {_UNKNOWN}"),
        *((fits,) if memory else ()),
        of("sent", lambda row: row.sent_bytes_per_device, "what a device sends in a step, on average", 1),
        of("all send", lambda row: row.ledger.sent_bytes_per_step, "what all devices together send in a step", 2),
    )


_GATHERED = "copies of parameters that exist only within a step"
_ACTIVATIONS = "kept between the forward and the backward pass; empty: not predicted, and not part of what is needed"
_UNKNOWN = "activations are not predicted, and not part of it"
_NEEDED = (
    "state, gathered copies and activations of one device, each at its peak; buffers and the framework come on top"
)


def _in_bytes(
    rows: Sequence[Prediction],
    header: str,
    value: Callable[[Prediction], float | None],
    meaning: str = "",
    drop_priority: int = 0,
    is_detail: bool = False,
) -> Column[Prediction]:
    """Returns a column of bytes, in one unit for all rows."""
    unit = common_unit(value(row) or 0 for row in rows)

    def write_one(row: Prediction) -> str:
        count = value(row)
        text = "" if count is None else in_unit(count, unit)
        return f"({text})" if text and is_detail else text

    return Column(header if is_detail else f"{header} {unit}", write_one, meaning, drop_priority, is_detail)

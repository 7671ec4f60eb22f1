"""The ledger of a step as a table: every quantity measured, predicted, and by the textbooks."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from samestep.common import memory
from samestep.common.costs.textbook import LETTERS, formulas
from samestep.common.errors import percent
from samestep.common.ledger import Ledger
from samestep.common.strategy import Formula, Run
from samestep.experiments.printing.text import bullets, github, screen_width, size

if TYPE_CHECKING:
    from samestep.common.runtime.records import RunResult  # it needs NumPy, which a prediction does without

_MEMORY = (*memory.STORED, memory.STATE, memory.ACTIVATIONS)
_MEANINGS = (
    "memory: of the fullest device; state is parameters, gradients, optimizer state and residuals",
    "an operation along an axis: the bytes that the first rank or device hands over in a step, and the number of operations",
    "sent: what all processes put on the wire in a step, with framing; between the devices of one process there is no wire",
)
_SECONDS_MEAN = (
    "busy: the processor time of the first process in the observed step, which takes longer because it is observed; "
    "idle: the rest of that step on its devices"
)


@dataclasses.dataclass(frozen=True)
class Amount:
    """The amount of a quantity.

    Attributes:
        value: Bytes, seconds or a share.
        count: The number of operations that send these bytes; None if the quantity is not an operation.
        unit: "B", "s" or "%".
    """

    value: float
    count: int | None = None
    unit: str = "B"

    def __str__(self) -> str:
        if self.unit != "B":
            return f"{self.value:.3g} s" if self.unit == "s" else percent(self.value, 1)
        return size(self.value) + (f" in {self.count:,}" if self.count is not None else "")


def ledger_of_run(run: Run, result: "RunResult", width: int | None = None) -> str:
    """Returns the ledger of a run's step: measured, predicted, and by the textbooks.

    Args:
        run: The run.
        result: Its result.
        width: The characters of a line; those of the screen, unless given.
    """
    first = result.processes[0]
    seconds = {"busy": first.busy_seconds, "idle": first.idle_seconds}
    told = {name: value for name, value in seconds.items() if value is not None}
    return ledger_table(result.predicted, result.measured, formulas(run, result.backend), told, width)


def ledger_table(
    predicted: Ledger,
    measured: Ledger | None = None,
    textbook: Sequence[Formula] = (),
    seconds: Mapping[str, float] | None = None,
    width: int | None = None,
) -> str:
    """Returns the ledger of a step.

    Args:
        predicted: The ledger of the cost model.
        measured: The ledger of a run; without it the table has no columns of measurements.
        textbook: The formulas of the textbooks.
        seconds: The measured seconds without predictions: "busy", "idle".
        width: The characters of a line; those of the screen, unless given.
    """
    width = width or screen_width()
    expected, found = quantities(predicted), quantities(measured) if measured else {}
    found |= {name: Amount(value, unit="s") for name, value in (seconds or {}).items()}
    if whole := sum((seconds or {}).values()):
        found["idle share"] = Amount(found["idle"].value / whole, unit="%")
    by_name = {formula.quantity: formula for formula in textbook}
    names = list(dict.fromkeys((*expected, *found, *by_name)))
    rows = [_row(name, found.get(name), expected.get(name), by_name.get(name)) for name in names]
    headers = ["quantity", "measured", "predicted", "error", "textbook"]
    kept = [n for n, header in enumerate(headers) if measured or header not in ("measured", "error")]
    table = github([headers[n] for n in kept], [[row[n] for n in kept] for row in rows], width)
    lines = [f"textbook, {f.quantity}: {f.text} ({f.source})" for f in textbook]
    lines += [f"letters of the textbooks: {_say_letters(textbook)}"] if textbook else []
    lines += [*_MEANINGS, _SECONDS_MEAN] if seconds else _MEANINGS
    return f"{table}\n\n{bullets(lines, width)}"


def _say_letters(textbook: Sequence[Formula]) -> str:
    """Returns the meanings of the letters in some formulas."""
    used = {letter for formula in textbook for letter in re.findall("[A-Za-zΨκ]+", formula.text)}
    return ", ".join(f"{letter} = {meaning}" for letter, meaning in LETTERS.items() if letter in used)


def quantities(ledger: Ledger) -> dict[str, Amount]:
    """Returns all amounts of a ledger by name, in the order of the table."""
    found = {}
    for each in _MEMORY:
        held = [count for row in ledger.footprints if (count := each.held(row)) is not None]
        if any(held) or (held and each is not memory.RESIDUALS):
            found[each.name] = Amount(max(held))
    for send in ledger.sends:
        before = found.get(name := f"{send.phase}: {send.operation} along {send.group}", Amount(0, 0))
        found[name] = Amount(before.value + send.bytes, (before.count or 0) + send.count)
    return found | {"sent": Amount(ledger.sent_bytes_per_step)}


def _row(name: str, measured: Amount | None, predicted: Amount | None, formula: Formula | None) -> list[str]:
    textbook = "" if formula is None else str(Amount(formula.value, unit="%" if name == "idle share" else "B"))
    return [name, str(measured or ""), str(predicted or ""), relative_error(measured, predicted), textbook]


def relative_error(measured: Amount | None, predicted: Amount | None) -> str:
    """Returns how far a measurement is from its prediction: "exact", or in percent of the prediction.

    Args:
        measured: The measurement; None if there is none.
        predicted: The prediction; None if there is none.
    """
    if measured is None or predicted is None:
        return ""
    if measured == predicted:
        return "exact"
    if measured.value == predicted.value or not predicted.value:
        return "differs"
    return f"{100 * (measured.value / predicted.value - 1):+.2g} %"

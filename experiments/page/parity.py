"""The section on strategies by models: how far each deviates from its reference, and whether that is within the bounds."""

import dataclasses
import math
from collections.abc import Sequence

from markupsafe import Markup

from samestep.common.catalog import cells
from samestep.common.cell import Cell
from samestep.common.errors import count
from samestep.common.judging.parity import bound_of
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.rendering import render
from samestep.experiments.printing.text import marked, sharing

_ORDERS = 5
"""A deviation that is this many orders of magnitude below its bound has the palest colour."""
_DARKEST = 45
"""The percentage of the colour at the bound, on which text can still be read."""
Judged = tuple[Entry, RunResult]


@dataclasses.dataclass(frozen=True)
class Field:
    """One strategy on one model.

    Attributes:
        key: The key of the row that is nearest to its bound; None without a run.
        kind: Its class in the style sheet.
        said: The largest deviation, and whether that is within the bounds.
        rows: The number of its rows, as text, if there are several.
        deviation: The deviation as a number.
        style: The style with the strength of its colour.
    """

    key: str | None = None
    kind: str | None = None
    said: str = ""
    rows: str = ""
    deviation: float | None = None
    style: str | None = None


def write(loaded: Loaded) -> Markup | None:
    """Makes the section."""
    fields = sharing(
        ((result.name, facet.workload), (entry, result))
        for facet in loaded.facets()
        for entry, result in facet.rows
        if result.is_trained
    )
    columns = dict.fromkeys(workload for _, workload in fields)
    names = [name for name in cells() if any(name == own for own, _ in fields)]
    if not names or not (len(columns) > 1 or loaded.groups[1:]):  # the table of all rows has the same
        return None
    rows = [
        (_name(name, fields), Cell.parse(name).framework, [_field(fields.get((name, each), [])) for each in columns])
        for name in names
    ]
    alt = f"Parity of {len(names)} strategies on {count(len(columns), 'workload')}: the largest deviation of each."
    figure = {"alt": alt, "title": "Largest deviation"}
    return render("parity", {"figure": figure, "columns": columns, "rows": rows})


def _name(name: str, fields: dict[tuple[str, str], list[Judged]]) -> str:
    is_emulated = any(result.emulation for (own, _), rows in fields.items() if own == name for _, result in rows)
    return marked(name, is_emulated)


def _field(rows: Sequence[Judged]) -> Field:
    if not rows:
        return Field()
    judged = [row for row in rows if row[1].parity.passed is not None]
    if not judged:
        return Field(rows[0][0].key, "quiet", "not judged")
    entry, worst = max(judged, key=lambda row: (row[1].parity.passed is False, nearness(row[1])))
    deviation, passed = worst.parity.max_relative_loss, worst.parity.passed
    number = "not finite" if deviation is None else f"{deviation:.0e}" if deviation else "equal"
    said, kind = (f"✓ {number}", "same") if passed else (f"✗ {number}", "bad")
    several = count(len(judged), "row") if len(judged) > 1 else ""
    shade = f"--shade:{_DARKEST * nearness(worst):.0f}%" if passed else None
    return Field(entry.key, kind, said, several, deviation, shade)


def nearness(result: RunResult) -> float:
    """Returns how near a run's deviation is to its bound: 0 if equal or far below, 1 at the bound and beyond."""
    deviation = result.parity.max_relative_loss
    if deviation is None:
        return 1.0
    orders = math.log10(bound_of(result.parity, result.dtype) / deviation) if deviation else math.inf
    return 1 - min(max(orders, 0.0), _ORDERS) / _ORDERS

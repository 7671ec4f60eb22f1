"""Strategies by models: how far each is from its reference, and whether that is within the bounds."""

import math
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from samestep.common.catalog import catalogue
from samestep.common.judging.parity import bound_of
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.markup import Child, element, scrolling
from samestep.experiments.page.plots import figure, meaning
from samestep.experiments.printing.text import count

_ORDERS = 5
"""A deviation so many orders of magnitude below the bound is as pale as one can be."""
_DARKEST = 45
"""Percent of the colour at the bound: text on it can still be read."""
_MEANING = (
    "The number is the largest relative deviation of a loss at any judged step. The stronger a field, the nearer "
    "the deviation is to the bound of its dtype; without colour it is five orders of magnitude below, or equal. A "
    "field with several rows shows the one that is nearest to its bound."
)
Judged = tuple[Entry, RunResult]


def write(loaded: Loaded) -> Element | None:
    """Makes the section."""
    fields: dict[tuple[str, str], list[Judged]] = {}
    columns: dict[str, None] = {}
    for facet in loaded.facets():
        for entry, result in facet.rows:
            if result.framework != "numpy" and not result.compiled:
                columns[facet.workload] = None
                fields.setdefault((f"{result.framework}:{result.strategy}", facet.workload), []).append((entry, result))
    names = [f"{framework}:{row.name}" for framework, row in catalogue()]
    names = [name for name in names if any(name == own for own, _ in fields)]
    if not names:
        return None
    head = element(
        "tr", element("th", "strategy", scope="col"), *(element("th", each, scope="col") for each in columns)
    )
    body = [
        element("tr", _name(name, fields), *(_field(fields.get((name, column), [])) for column in columns))
        for name in names
    ]
    matrix = element("table", element("thead", head), element("tbody", *body), class_="matrix")
    alt = f"Parity of {len(names)} strategies on {count(len(columns), 'workload')}: the largest deviation of each."
    whole = scrolling(matrix, "Parity by strategy and workload")
    return element("div", meaning(_MEANING), figure(alt, "Largest deviation", whole, class_="parity"))


def _name(name: str, fields: dict[tuple[str, str], list[Judged]]) -> Element:
    framework, _, _ = name.partition(":")
    is_emulated = any(result.emulation for (own, _), rows in fields.items() if own == name for _, result in rows)
    return element("th", f"{name} (emulated)" if is_emulated else name, scope="row", class_=framework)


def _field(rows: Sequence[Judged]) -> Element:
    """One strategy on one model."""
    if not rows:
        return element("td")
    judged = [row for row in rows if row[1].parity.passed is not None]
    if not judged:
        return element("td", "not judged", class_="quiet", data_row=rows[0][0].key)
    entry, worst = max(judged, key=lambda row: (row[1].parity.passed is False, nearness(row[1])))
    deviation, passed = worst.parity.max_relative_loss, worst.parity.passed
    number = "not finite" if deviation is None else f"{deviation:.0e}" if deviation else "equal"
    said: list[Child] = [f"{'✓' if passed else '✗'} {number}"]
    said += [element("small", f" {count(len(judged), 'row')}")] if len(judged) > 1 else []
    shade = None if not passed else f"--shade:{_DARKEST * nearness(worst):.0f}%"
    kind = "same" if passed else "bad"
    return element("td", *said, class_=kind, style=shade, data_value=deviation, data_row=entry.key)


def nearness(result: RunResult) -> float:
    """How near a run's deviation is to its bound: 0 if equal or far below, 1 at the bound and beyond."""
    deviation = result.parity.max_relative_loss
    if deviation is None:
        return 1.0
    orders = math.log10(bound_of(result.parity, result.dtype) / deviation) if deviation else math.inf
    return 1 - min(max(orders, 0.0), _ORDERS) / _ORDERS

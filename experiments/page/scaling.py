"""How speed grows with the number of devices, beside what textbooks and a straight line say."""

import math
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from samestep.experiments.comparing.scaling import Point, Scaling
from samestep.experiments.comparing.speeds import spell_ratio
from samestep.experiments.page.axes import Axis
from samestep.experiments.page.curves import curve, dot, panel, whisker
from samestep.experiments.page.loaded import Group, Loaded
from samestep.experiments.page.markup import Child, element, scrolling, table
from samestep.experiments.page.plots import FRAMEWORKS, figure, key, meaning
from samestep.experiments.printing.scaling_report import COLUMNS, explain_fit, title_of
from samestep.experiments.printing.text import joined

_ASIDE = 9
"""Pixels from the marks of one row to those of the next, which would hide one another."""


def write(loaded: Loaded) -> Element | None:
    """Makes the section."""
    parts: list[Child] = []
    for group in loaded.groups:
        scaling = group.comparison.scaling
        for kind in dict.fromkeys(each.kind for each in scaling):
            parts.append(_kind(group, [each for each in scaling if each.kind == kind]))
    return element("div", *parts) if parts else None


def _kind(group: Group, found: Sequence[Scaling]) -> Element:
    """Rows that scale in one way: their curves, and their numbers."""
    lines = [(each, point) for each in found for point in each.points]
    shown = joined([column for column in COLUMNS if any(map(column.value, lines))])
    numbers = table([column.header for column in shown], ([column.value(line) for column in shown] for line in lines))
    notes = [f"{column.header}: {column.meaning}" for column in shown if column.meaning] + list(map(explain_fit, found))
    below = [
        scrolling(numbers, "Scaling in numbers"),
        element("ul", *(element("li", note) for note in notes), class_="notes"),
    ]
    about = meaning(title_of(found))
    drawn = [each for each in found if any(point.speedup for point in each.points)]
    if not drawn:
        return element(
            "div",
            element("h3", group.title),
            about,
            element("p", "No speed-up may be told here, so there is no curve.", class_="note"),
            *below,
        )
    swatches = key(*FRAMEWORKS[:2], ("whisker", "95 % interval"), ("ideal", "twice the devices, twice the speed"))
    names = ", ".join(each.name for each in drawn)
    return figure(f"Speed-up by the number of devices of {names}.", group.title, about, swatches, _panel(drawn), *below)


def _panel(found: Sequence[Scaling]) -> Element:
    rows = [(each, [(point, ratio) for point in each.points if (ratio := _ratio(each, point))]) for each in found]
    counts = sorted({point.devices for _, points in rows for point, _ in points})
    across = Axis(counts[0] / 1.15, counts[-1] * 1.15, lambda v: f"{v:.0f}", is_log=True, at=tuple(map(float, counts)))
    ends = [end for _, points in rows for point, ratio in points for end in (ratio, *(_interval(point) or ()))]
    up = _powers_of_two([*ends, counts[-1] / counts[0]])
    curves = [curve(across, up, [(counts[0], 1.0), (counts[-1], counts[-1] / counts[0])], "ideal", "ideal")]
    marks = []
    for number, (each, points) in enumerate(rows):
        kind = each.cell.partition(":")[0]
        aside = round((number - (len(rows) - 1) / 2) * _ASIDE)
        curves.append(curve(across, up, [(point.devices, ratio) for point, ratio in points], kind, each.name))
        for point, ratio in points:
            if interval := _interval(point):
                marks.append(whisker(across, up, point.devices, interval, kind, aside))
            place = (point.devices, ratio)
            marks.append(dot(across, up, place, kind, aside=aside, data_cell=each.cell, data_value=ratio))
        last, ratio = points[-1]
        marks.append(dot(across, up, (last.devices, ratio), f"end {kind}", each.name, aside))
    return panel(across, up, ("devices", "speed-up, logarithmic"), "Speed-up by devices.", curves, dots=marks)


def _ratio(row: Scaling, point: Point) -> float | None:
    """The speed-up that is drawn: 1 for the fewest devices; None where none may be told."""
    return point.speedup.ratio if point.speedup else 1.0 if point is row.points[0] else None


def _interval(point: Point) -> tuple[float, float] | None:
    """The 95 % confidence interval of a speed-up; None if it has none."""
    speedup = point.speedup
    return (speedup.low, speedup.high) if speedup and speedup.low and speedup.high else None


def _powers_of_two(values: Sequence[float]) -> Axis:
    low, high = min(values) / 1.1, max(values) * 1.1
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    return Axis(low, high, spell_ratio, is_log=True, at=tuple(2.0**power for power in powers))

"""The section on how speed grows with the number of devices, compared with the textbooks' speed-up and a straight line."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from samestep.experiments.comparing.scaling import Scaling, ScalingPoint
from samestep.experiments.comparing.speeds import spell_ratio
from samestep.experiments.page.axes import AxisScale
from samestep.experiments.page.curves import Panel, curve, dot, whisker
from samestep.experiments.page.loaded import Group, Loaded
from samestep.experiments.page.rendering import render
from samestep.experiments.printing.column_table import joined, meanings
from samestep.experiments.printing.scaling_report import COLUMNS, explain_fit, title_of
from samestep.experiments.printing.text import sharing

_ASIDE = 9
"""The pixels between the marks of two rows, so they do not hide each other."""


def write(loaded: Loaded) -> Markup | None:
    """Makes the section."""
    figures = [_growth(group, found) for group in loaded.groups for found in _by_kind(group)]
    return render("scaling", {"figures": figures}) if figures else None


def _growth(group: Group, found: Sequence[Scaling]) -> dict[str, object]:
    """Returns a figure of rows with the same kind of scaling."""
    lines = [(each, point) for each in found for point in each.points]
    shown = joined([column for column in COLUMNS if any(map(column.value, lines))])
    numbers = [[column.value(line) for column in shown] for line in lines]
    drawn = [each for each in found if any(point.speedup for point in each.points)]
    return {
        "alt": f"Speed-up by the number of devices of {', '.join(each.name for each in drawn)}.",
        "title": group.title,
        "about": title_of(found),
        "panel": _panel(drawn) if drawn else None,
        "headers": [column.header for column in shown],
        "numbers": numbers,
        "notes": meanings(shown) + list(map(explain_fit, found)),
    }


def _panel(found: Sequence[Scaling]) -> Panel:
    rows = [(each, [(point, ratio) for point in each.points if (ratio := _ratio(each, point))]) for each in found]
    counts = sorted({point.devices for _, points in rows for point, _ in points})
    across = AxisScale(
        counts[0] / 1.15, counts[-1] * 1.15, lambda v: f"{v:.0f}", is_log=True, at=tuple(map(float, counts))
    )
    ends = [end for _, points in rows for point, ratio in points for end in (ratio, *(_interval(point) or ()))]
    up = _powers_of_two([*ends, counts[-1] / counts[0]])
    axes = (across, up)
    curves = [curve(axes, [[(counts[0], 1.0), (counts[-1], counts[-1] / counts[0])]], "ideal", "ideal")]
    marks = []
    for number, (each, points) in enumerate(rows):
        kind = each.cell.framework
        aside = round((number - (len(rows) - 1) / 2) * _ASIDE)
        curves.append(curve(axes, [[(point.devices, ratio) for point, ratio in points]], kind, each.name))
        for point, ratio in points:
            if interval := _interval(point):
                marks.append(whisker(axes, point.devices, interval, kind, aside))
            about = {"data-cell": each.cell, "data-value": ratio}
            marks.append(dot(axes, (point.devices, ratio), kind, aside, about))
        last, ratio = points[-1]
        marks.append(dataclasses.replace(dot(axes, (last.devices, ratio), f"end {kind}", aside), said=each.name))
    return Panel(across, up, ("devices", "speed-up, logarithmic"), "Speed-up by devices.", curves, dots=marks)


def _by_kind(group: Group) -> Iterable[list[Scaling]]:
    """Returns the rows of a group that scale, grouped by the kind of scaling."""
    return sharing((each.kind, each) for each in group.comparison.scaling).values()


def panels(group: Group) -> Iterator[tuple[str, Panel]]:
    """Yields the figure of the rows of each kind of scaling, with its title."""
    for found in _by_kind(group):
        if drawn := [each for each in found if any(point.speedup for point in each.points)]:
            yield title_of(found), _panel(drawn)


def _ratio(row: Scaling, point: ScalingPoint) -> float | None:
    """Returns the speed-up that is drawn: 1 for the fewest devices; None if confounds prevent it."""
    return point.speedup.ratio if point.speedup else 1.0 if point is row.points[0] else None


def _interval(point: ScalingPoint) -> tuple[float, float] | None:
    """Returns the 95 % confidence interval of a speed-up; None if it has none."""
    speedup = point.speedup
    return (speedup.low, speedup.high) if speedup and speedup.low and speedup.high else None


def _powers_of_two(values: Sequence[float]) -> AxisScale:
    low, high = min(values) / 1.1, max(values) * 1.1
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    return AxisScale(low, high, spell_ratio, is_log=True, at=tuple(2.0**power for power in powers))

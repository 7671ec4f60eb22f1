"""Speed against memory: one point for each row of a comparison, with its name."""

import dataclasses
from collections.abc import Iterable
from xml.etree.ElementTree import Element

from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.quantities import STATE
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.page.axes import AxisScale, fitting, in_bytes, spell_tick
from samestep.experiments.page.drawings.svg import drawing, put, stroke, write
from samestep.experiments.page.paper import marks
from samestep.experiments.page.paper.figure_parts import SMALL, room_for
from samestep.experiments.printing.columns import range_of

WIDTH = 760
LEFT, NAMES, TOP, LEAST_HEIGHT, FOOT = 64, 130, 40, 290, 66
LINE = 16
"""The distance between two names, in pixels."""
MOST_ROWS = 40
"""The most rows that are drawn, the fastest first."""
MOST_NAMES = 0.6
"""The share of the width that names may take; longer ones are cut."""


@dataclasses.dataclass(frozen=True)
class _Point:
    name: str
    framework: str
    bytes: float
    speed: float
    ends: tuple[float, float] | None
    is_same: bool

    @property
    def said(self) -> str:
        """The name, with a remark if the row missed parity."""
        return self.name + ("" if self.is_same else ", not the same step")


def trade(found: Comparison, width: float = WIDTH) -> Element | None:
    """Draws rows except the oracle by the state of a device and their speed; None if fewer than two have both.

    Args:
        found: The comparison.
        width: The width in pixels; names take as much of it as they need, up to MOST_NAMES.
    """
    points = sorted(_points(found.trained), key=lambda point: -point.speed)[:MOST_ROWS]
    if len(points) < 2:
        return None
    speeds = fitting([value for point in points for value in (point.speed, *(point.ends or ()))], spell_tick)
    memory, unit = in_bytes([point.bytes for point in points])
    said_in = [_cut(point.said, MOST_NAMES * width) for point in points]
    names = max(room_for(said, SMALL) for said in said_in)
    right = width - (26 + names if width < WIDTH else max(NAMES, 26 + names))
    panel = _Panel(memory, speeds, right, TOP + max(min(LEAST_HEIGHT, 0.6 * width), LINE * (len(points) - 1)))
    leanest = min(points, key=lambda point: point.bytes)
    said = f"{points[0].name} is fastest; {leanest.name} holds least on a device"
    root = drawing(width, panel.bottom + (FOOT if width < WIDTH else FOOT - LINE), "Speed by memory", said)
    write(root, LEFT, TOP - 16, f"examples per second{', logarithmic' if speeds.is_log else ''}", "strong")
    write(root, right, panel.bottom + 36, f"state of a device, {unit}", "strong end")
    note = panel.bottom + (36 + LINE if width < WIDTH else 36)
    write(root, LEFT, note, "a vertical line: the range of a row's speed", "muted small")
    panel.draw_axes(root)
    places = panel.spread([panel.y(point.speed) for point in points])
    for point, said, place in zip(points, said_in, places, strict=True):
        group = _draw(root, point, panel, place, said)
        if said != point.said:
            put(group, "title").text = point.said
    return root


def _cut(words: str, room: float) -> str:
    """Returns a name, cut if there is not enough room for it."""
    if room_for(words, SMALL) <= room:
        return words
    return next(cut for end in range(len(words), -1, -1) if room_for(cut := f"{words[:end]}...", SMALL) <= room)


@dataclasses.dataclass(frozen=True)
class _Panel:
    """The places of values: memory grows from left to right, speed from the bottom to the top."""

    memory: AxisScale
    speeds: AxisScale
    right: float
    bottom: float

    def x(self, value: float) -> float:
        return LEFT + self.memory.place(value) / 100 * (self.right - LEFT)

    def y(self, value: float) -> float:
        return self.bottom - self.speeds.place(value) / 100 * (self.bottom - TOP)

    def draw_axes(self, root: Element) -> None:
        for tick in self.speeds.ticks:
            y = self.y(tick)
            stroke(root, "line", [(LEFT, y), (self.right, y)])
            write(root, LEFT - 8, y + 4, self.speeds.spell(tick), "muted small end")
        for tick in self.memory.ticks:
            x = self.x(tick)
            stroke(root, "line", [(x, self.bottom), (x, self.bottom + 5)])
            write(root, x, self.bottom + 18, self.memory.spell(tick), "muted small middle")
        stroke(root, "line", [(LEFT, self.bottom), (self.right, self.bottom)])

    def spread(self, heights: list[float]) -> list[float]:
        """Returns the heights of the names: near their points and in their order, at least a line apart, within the figure."""
        places: list[float] = []
        for index, height in enumerate(heights):
            lowest = self.bottom - (len(heights) - 1 - index) * LINE
            places.append(min(max(height, places[-1] + LINE if places else TOP), lowest))
        return places


def _points(rows: Iterable[MeasuredRow]) -> list[_Point]:
    found = []
    for row in rows:
        held, speed = STATE.value(row), row.speed.prediction
        if held is not None and speed is not None:
            is_same = row.result.parity.passed is not False
            found.append(_Point(row.name, row.result.framework, float(held), speed.median, range_of(row), is_same))
    return found


def _draw(root: Element, point: _Point, panel: _Panel, label: float, said: str) -> Element:
    """Draws a point with its interval and its name: a shape for each framework, a cross for a row that missed."""
    x, y = panel.x(point.bytes), panel.y(point.speed)
    group = put(root, "g", f"row {point.framework}", data_bytes=point.bytes, data_speed=point.speed)
    stroke(group, "line", [(x, y), (panel.right + 14, label), (panel.right + 20, label)], 0.75)
    if point.ends:
        stroke(group, "wire", [(x, panel.y(end)) for end in point.ends])
    if point.is_same:
        marks.point(group, point.framework, x, y)
    else:
        marks.cross(group, x, y)
    write(group, panel.right + 24, label + 4, said, "small")
    return group

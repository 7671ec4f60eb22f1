"""Draws the figures of the page at any width: bars, points and intervals next to the names of rows, and curves in a frame."""

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from samestep.experiments.page.curves import FRAME, Panel, PlottedCurve
from samestep.experiments.page.drawings.svg import drawing, put, stroke, write
from samestep.experiments.page.paper.figure_parts import (
    LINE,
    SMALL,
    SWATCH,
    TEXT,
    broken,
    draw_axis,
    draw_key,
    room_for,
)
from samestep.experiments.page.paper.marks import HATCHES, bar, point
from samestep.experiments.page.plots import Line, Mark, Plot

_NARROW = 500.0
"""The width below which a name is placed above its marks."""
_MOST_NAME = 220.0
_TRACK, _ROW_GAP = 13.0, 6.0
_ASPECT, _MOST_HEIGHT = 0.62, 300.0
_FOOT = 40.0
Key = Sequence[tuple[str, str]]
"""The classes of the marks of a figure in the style sheet, with their meanings."""


def chart(plot: Plot, key: Key, width: float) -> Element:
    """Draws a figure of lines.

    Args:
        plot: The figure.
        key: The meanings of its marks; their order decides the hatches of the parts of a bar.
        width: The width, in units of the drawing.
    """
    is_narrow = width < _NARROW
    said = 10 + max(room_for(_said(line), TEXT, is_bold=True) for line in plot.lines)
    room = min(_MOST_NAME, max(room_for(line.title, SMALL) for line in plot.lines) + 2)
    left, right = (6.0, width - 8) if is_narrow else (room + 12, width - said)
    drawn = Element("g")
    chart = _Chart(drawn, left, right, {kind: HATCHES[place % len(HATCHES)] for place, kind in enumerate(_parts(key))})
    y = draw_key(drawn, key, 10.0, width, chart.swatch)
    top = y
    for line in plot.lines:
        y = _row(chart, line, broken(line.title, width - said if is_narrow else room), y, width, is_narrow)
    root = drawing(width, y + 40, plot.title, plot.alt)
    for tick in plot.axis.ticks:
        x = left + plot.axis.place(tick) / 100 * (right - left)
        stroke(root, "line", [(x, top), (x, y)])
    root.extend(drawn)
    draw_axis(root, plot.axis, plot.unit, (left, right, y))
    return root


def _row(chart: "_Chart", line: Line, lines: Sequence[str], y: float, width: float, is_narrow: bool) -> float:
    """Draws a row; returns the y at which the next one begins."""
    text, track = y + 11, y + (LINE * len(lines) if is_narrow else 0)
    for number, words in enumerate(lines):
        write(chart.root, 0, text + number * LINE, words, "small")
    write(chart.root, width, text, _said(line), "strong end")
    for mark in line.marks:
        chart.draw(mark, track)
    return max(track + _TRACK, y + LINE * len(lines)) + _ROW_GAP


def _said(line: Line) -> str:
    """Returns the number next to a line: the first of its numbers."""
    return str(next(iter(line.said.values())))


def _parts(key: Key) -> list[str]:
    return list(dict.fromkeys(kind.split()[-1] for kind, _ in key))


class _Chart:
    """Draws marks at their places between two edges."""

    def __init__(self, root: Element, left: float, right: float, hatches: Mapping[str, str]) -> None:
        self.root, self._left, self._right, self._hatches = root, left, right, hatches

    def draw(self, mark: Mark, y: float) -> None:
        """Draws a mark of the page on the track that begins at `y`."""
        share = (self._right - self._left) / 100
        x, wide = (mark.at.get(name, 0.0) * share for name in ("left", "width"))
        self._mark(mark.kind.split(), self._left + x, wide, y, mark.data)

    def swatch(self, kind: str, x: float, y: float) -> None:
        """Draws a mark for the key, in the box that begins at `x` and `y`."""
        kinds = kind.split()
        is_bar = kinds[0] not in ("dot", "expected", "least", "interval", "spread")
        middle = x + (0 if is_bar or kinds[0] in ("interval", "spread") else SWATCH / 2)
        self._mark(kinds if not is_bar else ["bar", "measured", kinds[-1]], middle, SWATCH, y - _TRACK / 2, {})

    def _mark(self, kinds: Sequence[str], x: float, wide: float, y: float, data: Mapping[str, object]) -> None:
        """Adds a shape, with the number that it shows as an attribute."""
        group = put(self.root, "g", " ".join(kinds))
        group.attrib |= {name: f"{value}" for name, value in data.items() if value is not None}
        middle, kind = y + _TRACK / 2, kinds[-1]
        match kinds[0]:
            case "bar":
                top, height = (y + 9, 4.0) if "predicted" in kinds else (y, 9.0)
                if kind == "unknown":
                    put(group, "rect", "whole", x=x, y=top, width=wide, height=height)
                else:
                    bar(group, kind, self._hatches.get(kind, "") if height > 4 else "", (x, top, wide, height))
            case "interval":
                bar(group, kind, "", (x, middle - 1.5, wide, 3.0))
            case "spread":
                style = f"stroke:var(--{kind});stroke-dasharray:2 2"
                put(group, "path", style=style, fill="none", d=f"M{x:.6g} {middle:.6g}L{x + wide:.6g} {middle:.6g}")
            case "dot":
                point(group, kind, x, middle)
            case "expected":
                put(group, "circle", "ring", cx=x, cy=middle, r=4.0)
            case "least":
                stroke(group, "wire", [(x, y - 1), (x, y + _TRACK + 1)], 2)


def graph(panel: Panel, title: str, key: Sequence[tuple[str, str]], width: float) -> Element:
    """Draws a panel.

    Args:
        panel: The panel.
        title: Its title.
        key: The classes of its curves in the style sheet, with their meanings.
        width: The width, in units of the drawing.
    """
    drawn = Element("g")

    def swatch(kind: str, x: float, y: float) -> None:
        stroke(drawn, f"curve {kind}", [(x, y), (x + SWATCH, y)])

    top = draw_key(drawn, key, 10.0, width, swatch) + 12
    left = 10 + max(room_for(panel.up.spell(tick), SMALL) for tick in panel.up.ticks)
    ends = [room_for(each.said, SMALL) for each in panel.dots if each.said]
    right = width - max([8.0, *ends])
    bottom = top + min(_MOST_HEIGHT, _ASPECT * width)
    root = drawing(width, bottom + _FOOT, title, panel.alt)
    root.append(drawn)
    write(root, 0, top - 8, panel.units[1], "small")
    for tick in panel.up.ticks:
        y = bottom - panel.up.place(tick) / 100 * (bottom - top)
        stroke(root, "line", [(left, y), (right, y)])
        write(root, left - 6, y + 4, panel.up.spell(tick), "muted small end")
    draw_axis(root, panel.across, panel.units[0], (left, right, bottom))
    frame = _Frame(left, right, top, bottom)
    for level, meaning in panel.levels:
        y = frame.y(100 - panel.up.place(level))
        stroke(root, "level", [(left, y), (right, y)])
        write(root, right - 2, y + 12, meaning, "small end")
    for each in panel.curves:
        _draw_curve(root, frame, each)
    for each in panel.dots:
        _mark(root, frame, each.kind.split(), each.at, each.said)
    return root


class _Frame:
    """Converts percentages of a panel, from its left and its upper edge, into positions in a drawing."""

    def __init__(self, left: float, right: float, top: float, bottom: float) -> None:
        self._left, self._top, self._per_x, self._per_y = left, top, (right - left) / 100, (bottom - top) / 100

    def x(self, share: float) -> float:
        return self._left + share * self._per_x

    def y(self, share: float) -> float:
        return self._top + share * self._per_y


def _draw_curve(root: Element, frame: _Frame, curve: PlottedCurve) -> None:
    share = 100 / FRAME
    parts = [[f"{frame.x(x * share):.5g} {frame.y(y * share):.5g}" for x, y in part] for part in curve.parts]
    drawn = put(root, "path", f"curve {curve.kind}", d="".join(f"M{'L'.join(part)}" for part in parts))
    put(drawn, "title").text = curve.title


def _mark(root: Element, frame: _Frame, kinds: Sequence[str], at: Mapping[str, float], said: str | None) -> None:
    x = frame.x(at["left"]) + at.get("margin-left", 0.0)
    y = frame.y(100 - at["bottom"])
    if said:
        write(root, x + 8, y + 4, said, "small")
    elif kinds[0] == "whisker":
        top = y - (frame.y(at["height"]) - frame.y(0))
        stroke(root, "wire", [(x, y), (x, top)])
    else:
        point(root, kinds[-1], x, y)

"""Draws curves in a frame with two axes as on the page, at any width."""

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from samestep.experiments.page.curves import FRAME, Panel, PlottedCurve
from samestep.experiments.page.drawings.svg import drawing, put, stroke, write
from samestep.experiments.page.paper.figure_parts import SMALL, SWATCH, draw_axis, draw_key, room_for
from samestep.experiments.page.paper.marks import point

_ASPECT, _MOST_HEIGHT = 0.62, 300.0
_FOOT = 40.0


def graph(panel: Panel, title: str, key: Sequence[tuple[str, str]], width: float) -> Element:
    """Draws a panel.

    Args:
        panel: The panel.
        title: Its title.
        key: The kinds of its curves, as in the style sheet, with their meanings.
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
    """Where percents of a panel are: from its left edge, and from its upper edge."""

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

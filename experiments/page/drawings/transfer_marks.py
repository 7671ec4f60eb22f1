"""The marks of transfers in a drawing: lines as wide as their bytes, with a dot for each device, or arrows between devices."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from samestep.experiments.page.drawings.svg import put
from samestep.experiments.page.drawings.transfers import DrawnTransfer
from samestep.experiments.printing.text import size

_APART = 10.0
"""The distance between the arrows of one transfer, in pixels."""


def dots(parent: Element, places: Sequence[tuple[float, float]], kind: str) -> None:
    """Draws dots as one path of lines without length, whose round ends have the width of the path's class.

    Args:
        parent: The element to which they are added.
        places: The positions of their centers.
        kind: The class of the path.
    """
    if places:
        put(parent, "path", kind, d="".join(f"M{x:g} {y:g}h0" for x, y in places))


def transfer_mark(each: DrawnTransfer, number: int, x: float, lanes: Sequence[float], width: float) -> Element:
    """Draws a transfer: a collective is a line with a dot at each of its devices, a message an arrow.

    Args:
        each: The transfer.
        number: Its number in the step.
        x: Its horizontal position.
        lanes: The vertical positions of the devices that are shown.
        width: The width of its line.
    """
    mark = Element("g")
    put(mark, "title").text = f"{number}: {each.operation}, {amount(each)}"
    arrows = [
        (lanes[start], lanes[end])
        for senders, receivers in each.paths
        for start in senders
        for end in receivers
        if senders != receivers and max(start, end) < len(lanes)
    ]
    apart = min(_APART, 24 / max(1, len(arrows)))
    middle = (len(arrows) - 1) / 2
    _arrows(mark, [(x + apart * (position - middle), *ends) for position, ends in enumerate(arrows)], width)
    groups = [
        [lanes[index] for index in senders if index < len(lanes)]
        for senders, receivers in each.paths
        if senders == receivers
    ]
    if lines := "".join(f"M{x:g} {group[0]:g}V{group[-1]:g}" for group in groups if group):
        put(mark, "path", "wire", d=lines, stroke_width=round(width, 2))
    dots(mark, [(x, lane) for group in groups for lane in group], "dots")
    return mark


def _arrows(mark: Element, arrows: Sequence[tuple[float, float, float]], width: float) -> None:
    """Draws arrows, each given by its x, and the y of its start and of its end."""
    shafts, heads, half = "", "", round(4 + width / 2, 1)
    for x, start, end in arrows:
        way = 1 if end > start else -1
        shafts += f"M{x:g} {start:g}V{end - way * 11:g}"
        heads += f"M{x - half:g} {end - way * 12:g}h{2 * half:g}L{x:g} {end - way * 3:g}z"
    if arrows:
        put(mark, "path", "wire", d=shafts, stroke_width=round(width, 2))
        put(mark, "path", "node", d=heads)
    dots(mark, [(x, start) for x, start, _ in arrows], "starts")


def amount(each: DrawnTransfer) -> str:
    """Returns the count of a transfer and the bytes that one device hands over, as in `2 x 4.1 KiB`.

    Args:
        each: The transfer.
    """
    one = size(each.bytes / each.count)
    return one if each.count == 1 else f"{each.count} x {one}"

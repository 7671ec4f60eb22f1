"""The anatomy of a strategy: what each device holds, and a step as a strip of what is sent when and from whom to whom.

It is drawn from the footprints and the sends of an observed step, for every row of both frameworks alike.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from samestep.common import memory
from samestep.common.ledger import PHASES, Footprint
from samestep.common.strategy import Run
from samestep.experiments.page.drawings.held import (
    CLASSES,
    device_names,
    drawn_from,
    held_from,
    share,
    whole_bytes,
    word,
)
from samestep.experiments.page.drawings.svg import drawing, put, stroke, write
from samestep.experiments.page.drawings.transfers import DrawnTransfer, transfers
from samestep.experiments.printing.text import count, size

if TYPE_CHECKING:
    from samestep.common.runtime.records import RunResult  # it needs NumPy

WIDTH = 760
MOST_DEVICES, MOST_TRANSFERS = 8, 12
"""That a drawing has room for."""
_HEAD, _ROW, _LINE = 92, 76, 17
"""Heights: above the first device, of a device, of a line of text."""
_BARS, _BAR, _STRIP, _RIGHT = 88, 130, 348, 744
"""Where the bars begin and how long the longest is; where the strip begins and ends."""
_WIDEST, _APART = 6.0, 10.0
"""The width of the line of the transfer with most bytes; how far apart the arrows of one transfer are."""
_KEY = "dashed: all of it; thin line: most parameters at once, gathered copies included; width of a line: bytes"


@dataclasses.dataclass(frozen=True)
class Scale:
    """What lengths in a drawing stand for; two drawings next to each other share it.

    Attributes:
        longest_bytes: The bytes of the longest bar.
        widest_bytes: The bytes of the transfer with the widest line.
    """

    longest_bytes: float
    widest_bytes: float

    @classmethod
    def of(cls, run: Run, result: "RunResult") -> "Scale":
        """Returns the scale at which a drawing just fits.

        Args:
            run: What was trained.
            result: What came of it.
        """
        held = [max(row.params_peak_bytes, *(each.bytes_of(row) for each in CLASSES)) for row in result.processes]
        sent = (each.bytes for each in transfers(run.mesh, result, MOST_TRANSFERS))
        return cls(max(*held, *whole_bytes(run), 1), max(sent, default=1) or 1)


def anatomy(run: Run, result: "RunResult", scale: Scale | None = None) -> Element:
    """Draws the anatomy of a strategy.

    Args:
        run: What was trained.
        result: What came of it.
        scale: Its own, unless given.
    """
    scale = scale or Scale.of(run, result)
    found = transfers(run.mesh, result, MOST_TRANSFERS)
    names = device_names(result)
    shown = min(len(names), MOST_DEVICES)
    top = _HEAD + shown * _ROW
    height = top + 40 + _LINE * (max(len(found), 1) + (len(names) > shown)) + 10
    root = drawing(WIDTH, height, f"Anatomy of {run.name}", _in_words(run, result, found, names))
    root.set("data-drawn-from", drawn_from(result))
    _caption(root, run, result)
    wholes = whole_bytes(run)
    for index, begins in enumerate(held_from(run, result.processes)[:shown]):
        _device(root, index, (names[index], result.processes[index]), begins, wholes, _BAR / scale.longest_bytes)
    _strip(root, found, shown, scale.widest_bytes)
    _list(root, found, names, top + 28)
    if len(names) > shown:
        write(root, 16, height - 30, f"and {count(len(names) - shown, 'more device')}", "muted small")
    write(root, 16, height - 12, _KEY, "muted small")
    return root


def _caption(root: Element, run: Run, result: "RunResult") -> None:
    emulated = " (emulated)" if result.emulation else ""
    write(root, 16, 24, f"{run.name}{emulated}", "title")
    write(root, 16, 43, run.strategy.summary, "muted")
    trained = f"{run.workload.name}, {count(run.num_devices, 'device')} ({run.mesh}), {run.optimizer.name}, {run.dtype}"
    write(root, 16, 60, f"{trained}: one observed step", "muted small")
    write(root, 16, 82, "holds", "strong small")


def _device(
    root: Element,
    index: int,
    device: tuple[str, Footprint],
    begins: Sequence[int],
    wholes: Sequence[int],
    scale: float,
) -> None:
    """One bar for each class: filled what the device holds, and which part that is, dashed what one with everything would."""
    top, (name, row) = _HEAD + index * _ROW, device
    stroke(root, "line", [(16, top), (_STRIP - 12, top)])
    write(root, 16, top + 17, name, "strong")
    for number, (each, whole, begin) in enumerate(zip(CLASSES, wholes, begins, strict=True)):
        y, held = top + 22 + 16 * number, each.bytes_of(row)
        write(root, _BARS - 6, y + 9, word(each), "muted small end")
        if held < whole:
            put(root, "rect", "whole", x=_BARS, y=y, width=whole * scale, height=10)
        put(root, "rect", each.kind, x=_BARS + begin * scale, y=y, width=held * scale, height=10)
        end = max(held, whole)
        if each is memory.PARAMETERS and (peak := row.params_peak_bytes) > held:
            end = max(end, peak)
            stroke(root, "peak", [(_BARS, y - 3), (_BARS + peak * scale, y - 3), (_BARS + peak * scale, y + 3)], 1.5)
        write(root, _BARS + end * scale + 6, y + 9, share(held, whole), "small")


def _strip(root: Element, found: Sequence[DrawnTransfer], shown: int, widest: float) -> None:
    """Three phases from left to right, a column for each transfer."""
    in_phase = [[(n, each) for n, each in enumerate(found, 1) if each.phase == phase] for phase in PHASES]
    slots = [max(1.5, len(each)) for each in in_phase]
    column = (_RIGHT - _STRIP) / sum(slots)
    bottom = _HEAD + shown * _ROW
    x, marks = float(_STRIP), []
    for position, (phase, several, width) in enumerate(zip(PHASES, in_phase, slots, strict=True)):
        if position % 2 == 0:
            put(root, "rect", "panel", x=x, y=_HEAD, width=width * column, height=bottom - _HEAD)
        write(root, x + 4, 82, phase, "strong small")
        for slot, (number, each) in enumerate(several):
            middle = x + (slot + (width - len(several)) / 2 + 0.5) * column
            marks.append(_mark(each, number, middle, shown, 1 + (_WIDEST - 1) * each.bytes / widest))
        x += width * column
    for index in range(shown):
        stroke(root, "line", [(_STRIP, _lane(index)), (_RIGHT, _lane(index))])
    stroke(root, "line", [(16, bottom), (WIDTH - 16, bottom)])
    for mark in marks:
        root.append(mark)


def _lane(index: int) -> float:
    return _HEAD + index * _ROW + _ROW / 2 + 4


def _mark(each: DrawnTransfer, number: int, x: float, shown: int, width: float) -> Element:
    """A collective is a line with a node at each of its devices; a message is an arrow."""
    mark = Element("g", {"data-transfer": str(number)})
    put(mark, "title").text = f"{number}: {each.operation}, {amount(each)}"
    arrows = [
        (start, end)
        for senders, receivers in each.paths
        for start in senders
        for end in receivers
        if senders != receivers and max(start, end) < shown
    ]
    apart = min(_APART, 24 / max(1, len(arrows)))
    for position, (start, end) in enumerate(arrows):
        _arrow(mark, x + apart * (position - (len(arrows) - 1) / 2), _lane(start), _lane(end), width)
    for senders, receivers in each.paths:
        if senders == receivers and (inside := [index for index in senders if index < shown]):
            stroke(mark, "wire", [(x, _lane(inside[0])), (x, _lane(inside[-1]))], width)
            for index in inside:
                put(mark, "circle", "node", cx=x, cy=_lane(index), r=4.5)
    highest = min((index for path in each.paths for side in path for index in side), default=0)
    _badge(mark, x, _lane(min(highest, shown - 1)) - 24, number)
    return mark


def _badge(parent: Element, x: float, y: float, number: int) -> None:
    put(parent, "circle", "node", cx=x, cy=y, r=8)
    write(parent, x, y + 4, str(number), "number")


def _arrow(mark: Element, x: float, start: float, end: float, width: float) -> None:
    way = 1 if end > start else -1
    tip = end - way * 3
    put(mark, "circle", "node", cx=x, cy=start, r=3)
    stroke(mark, "wire", [(x, start), (x, tip - way * 8)], width)
    half = 4 + width / 2
    put(mark, "path", "node", d=f"M{x - half:g} {tip - way * 9:g}L{x + half:g} {tip - way * 9:g}L{x:g} {tip:g}Z")


def _list(root: Element, found: Sequence[DrawnTransfer], names: Sequence[str], top: float) -> None:
    """What the numbers in the strip stand for."""
    for number, each in enumerate(found, 1):
        y = top + _LINE * (number - 1)
        _badge(root, 24, y - 4, number)
        write(root, 40, y, each.phase, "muted")
        write(root, 104, y, each.operation, "strong")
        write(root, 270, y, amount(each))
        write(root, 390, y, f"{each.between(names)}  (along {each.group})", "muted")
    if not found:
        write(root, 16, top, "nothing is sent", "muted")


def amount(each: DrawnTransfer) -> str:
    """Returns how many a transfer is and how many bytes one device hands over, as in `2 x 4.1 KiB`.

    Args:
        each: The transfer.
    """
    one = size(each.bytes / each.count)
    return one if each.count == 1 else f"{each.count} x {one}"


def _in_words(run: Run, result: "RunResult", found: Sequence[DrawnTransfer], names: Sequence[str]) -> str:
    """Returns what the drawing shows, for those who do not see it."""
    wholes = whole_bytes(run)
    held = [
        f"{name} holds "
        + ", ".join(
            f"{word(each)} {share(each.bytes_of(row), whole)}" for each, whole in zip(CLASSES, wholes, strict=True)
        )
        for name, row in zip(names, result.processes, strict=True)
    ]
    sent = [f"{each.phase}: {each.operation}, {amount(each)}, {each.between(names)}" for each in found]
    return ". ".join([*held, *(sent or ["Nothing is sent"])]) + "."

"""The anatomy of a strategy: what each device holds, and a step as a strip that shows when which device sends to which.

It is drawn from the footprints and the sends of an observed step, in the same way for every strategy of both frameworks.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from samestep.common import memory
from samestep.common.errors import count
from samestep.common.ledger import PHASES, Footprint
from samestep.common.strategy import Run
from samestep.experiments.page.drawings.device_bars import CLASSES, device_names, held_from, share, whole_bytes, word
from samestep.experiments.page.drawings.svg import drawing, put, write
from samestep.experiments.page.drawings.transfer_marks import amount, dots, transfer_mark
from samestep.experiments.page.drawings.transfers import DrawnTransfer, transfers
from samestep.experiments.printing.text import marked, sharing

if TYPE_CHECKING:
    from samestep.common.runtime.records import RunResult  # it needs NumPy

WIDTH = 760
MOST_DEVICES, MOST_TRANSFERS = 8, 12
"""The most devices that a drawing has room for."""
_HEAD, _ROW, _LINE = 92, 76, 17
"""The heights of the space above the first device, of a device, and of a line of text."""
_BARS, _STRIP, _RIGHT = 88, 348, 744
"""The x at which the bars begin, and at which the strip begins and ends."""
LONGEST = 130
"""The length of the longest bar, in pixels."""
_WIDEST = 6.0
"""The width of the line of the largest transfer."""
_KEY = "dashed: all of it; thin line: most parameters at once, gathered copies included; width of a line: bytes"


@dataclasses.dataclass(frozen=True)
class Scale:
    """The scale of a drawing, which two drawings next to each other share.

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
            run: The run.
            result: Its result.
        """
        held = [max(row.params_peak_bytes, *(each.bytes_of(row) for each in CLASSES)) for row in result.processes]
        sent = (each.bytes for each in transfers(run.mesh, result.processes, MOST_TRANSFERS))
        return cls(max(*held, *whole_bytes(run), 1), max(sent, default=1) or 1)


def anatomy(run: Run, result: "RunResult", scale: Scale | None = None) -> Element:
    """Draws the anatomy of a strategy.

    Args:
        run: The run.
        result: Its result.
        scale: The scale; by default one that just fits.
    """
    scale = scale or Scale.of(run, result)
    found = transfers(run.mesh, result.processes, MOST_TRANSFERS)
    names = device_names(result.processes)
    shown = min(len(names), MOST_DEVICES)
    top = _HEAD + shown * _ROW
    height = top + 40 + _LINE * (max(len(found), 1) + (len(names) > shown)) + 10
    root = drawing(WIDTH, height, f"Anatomy of {run.name}", _in_words(run, result, found, names))
    _caption(root, run, result)
    wholes = whole_bytes(run)
    for index, begins in enumerate(held_from(run, result.processes)[:shown]):
        _device(root, index, (names[index], result.processes[index]), begins, wholes, LONGEST / scale.longest_bytes)
    _strip(root, found, shown, scale.widest_bytes)
    _list(root, found, names, top + 42)
    if len(names) > shown:
        write(root, 16, height - 12, f"and {count(len(names) - shown, 'more device')}", "muted small")
    write(root, 16, top + 18, _KEY, "muted small")
    return root


def _caption(root: Element, run: Run, result: "RunResult") -> None:
    write(
        root, 16, 24, f"{marked(run.name, result.emulation)}, {count(run.num_devices, 'device')} ({run.mesh})", "title"
    )
    write(root, 16, 43, run.strategy.summary, "muted")
    trained = f"{run.workload.name}, {run.optimizer.name}, {run.dtype}: one observed step"
    write(root, 16, 60, trained, "muted small")


def _frame(root: Element, shown: int) -> None:
    """Draws the parts that all drawings with the same number of devices share."""
    frame = put(root, "g")
    write(frame, 16, 82, "holds", "strong small")
    tops = [_HEAD + index * _ROW for index in range(shown)]
    lanes = "".join(f"M16 {top}H{_STRIP - 12}M{_STRIP} {_lane(index):g}H{_RIGHT}" for index, top in enumerate(tops))
    put(frame, "path", "line", d=f"{lanes}M16 {_HEAD + shown * _ROW}H{WIDTH - 16}")
    words = put(frame, "g", "muted small end")
    for top, (number, each) in itertools.product(tops, enumerate(CLASSES)):
        write(words, _BARS - 6, top + 31 + 16 * number, word(each))


def _device(
    root: Element,
    index: int,
    device: tuple[str, Footprint],
    begins: Sequence[int],
    wholes: Sequence[int],
    scale: float,
) -> None:
    """Draws a bar for each class: the part that the device holds is filled, and a dashed outline shows the whole."""
    top, (name, row), root = _HEAD + index * _ROW, device, put(root, "g")
    write(root, 16, top + 17, name, "strong")
    shares = put(root, "g", "small")
    has_less = [(number, whole) for number, whole in enumerate(wholes) if CLASSES[number].bytes_of(row) < whole]
    if has_less:
        dashed = (f"M{_BARS} {top + 22 + 16 * number}h{whole * scale:.6g}v10H{_BARS}z" for number, whole in has_less)
        put(root, "path", "whole", d="".join(dashed))
    for number, (each, whole, begin) in enumerate(zip(CLASSES, wholes, begins, strict=True)):
        y, held = top + 22 + 16 * number, each.bytes_of(row)
        put(root, "rect", each.kind, x=_BARS + begin * scale, y=y, width=held * scale, height=10)
        end = max(held, whole)
        if each is memory.PARAMETERS and (peak := row.params_peak_bytes) > held:
            end = max(end, peak)
            put(root, "path", "peak", d=f"M{_BARS} {y - 3}H{_BARS + peak * scale:.6g}v6")
        write(shares, round(_BARS + end * scale + 6, 1), y + 9, share(held, whole))


def _strip(root: Element, found: Sequence[DrawnTransfer], shown: int, widest: float) -> None:
    """Draws the three phases from left to right, with a column for each transfer."""
    in_phase = [[(n, each) for n, each in enumerate(found, 1) if each.phase == phase] for phase in PHASES]
    slots = [max(1.5, len(each)) for each in in_phase]
    column = (_RIGHT - _STRIP) / sum(slots)
    bottom = _HEAD + shown * _ROW
    lanes = [_lane(index) for index in range(shown)]
    root = put(root, "g")
    phases, x, marks, badges = put(root, "g", "strong small"), float(_STRIP), [], []
    for position, (phase, several, width) in enumerate(zip(PHASES, in_phase, slots, strict=True)):
        if position % 2 == 0:
            put(phases, "rect", "panel", x=round(x, 1), y=_HEAD, width=round(width * column, 1), height=bottom - _HEAD)
        write(phases, round(x + 4, 1), 82, phase)
        for slot, (number, each) in enumerate(several):
            middle = round(x + (slot + (width - len(several)) / 2 + 0.5) * column, 1)
            top = lanes[min(min(each.devices, default=0), shown - 1)] - 24
            marks.append(transfer_mark(each, number, middle, lanes, 1 + (_WIDEST - 1) * each.bytes / widest))
            write(marks[-1], middle, top + 4, str(number), "number")
            badges.append((middle, top))
        x += width * column
    _frame(root, shown)
    dots(root, badges, "badges")
    root.extend(marks)


def _lane(index: int) -> float:
    return _HEAD + index * _ROW + _ROW / 2 + 4


def _list(root: Element, found: Sequence[DrawnTransfer], names: Sequence[str], top: float) -> None:
    """Writes the meanings of the numbers in the strip, one column after the other."""
    if not found:
        write(root, 16, top, "nothing is sent", "muted")
        return
    root, lines = put(root, "g"), [top + _LINE * place for place in range(len(found))]
    numbered = put(root, "g", "number")
    dots(numbered, [(24, y - 4) for y in lines], "badges")
    columns: Sequence[tuple[Element, int, Sequence[str]]] = (
        (numbered, 24, [str(number) for number in range(1, len(found) + 1)]),
        (put(root, "g", "muted"), 40, [each.phase for each in found]),
        (put(root, "g", "strong"), 104, [each.operation for each in found]),
        (put(root, "g"), 270, [amount(each) for each in found]),
        (put(root, "g", "muted"), 390, [f"{each.between(names)}  (along {each.group})" for each in found]),
    )
    for column, x, words in columns:
        for y, said in zip(lines, words, strict=True):
            write(column, x, y, said)


def _in_words(run: Run, result: "RunResult", found: Sequence[DrawnTransfer], names: Sequence[str]) -> str:
    """Returns a description of the drawing, for readers who cannot see it."""
    wholes = whole_bytes(run)
    shares = [
        sharing((share(c.bytes_of(row), w), word(c)) for c, w in zip(CLASSES, wholes, strict=True))
        for row in result.processes
    ]
    told = ["; ".join(f"{', '.join(classes)} {said}" for said, classes in each.items()) for each in shares]
    held = [f"{', '.join(alike)}: {said}" for said, alike in sharing(zip(told, names, strict=True)).items()]
    sent = [
        f"{phase}, {ends}: {', '.join(f'{each.operation} {amount(each)}' for each in several)}"
        for (phase, ends), several in itertools.groupby(found, lambda each: (each.phase, each.between(names)))
    ]
    return ". ".join([*held, *(sent or ["Nothing is sent"])]) + "."

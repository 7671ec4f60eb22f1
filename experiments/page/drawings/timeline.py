"""The timeline of a traced step: a row for each device with its computations, and below it its transfers in flight."""

import collections
import dataclasses
from collections.abc import Hashable, Sequence
from xml.etree.ElementTree import Element

from samestep.experiments.page.axes import round_step
from samestep.experiments.page.drawings.svg import drawing, put, stroke, write
from samestep.experiments.printing.trace_file import Device, Span, Trace

WIDTH = 760
MOST_DEVICES = 8
"""The most devices that a drawing has room for."""
_LEFT, _RIGHT, _HEAD = 112.0, 744.0, 74
_BAR, _FLIGHT, _GAP = 22, 7, 18
"""The heights of a computation, of a transfer, and of the gap between devices."""
_MOST_FLIGHTS = 4
"""The most transfers that are drawn below each other; further ones share their lines."""
_TOTALS = 16
"""The height of the line with the times of a device."""
_TIMES = "data-us"
"""The attribute of a shape with its start, from the start of the step, and its length, in microseconds."""
_LABEL = 13.0
"""The least width of a bar with a label, in pixels."""
_NARROWEST = 0.4
"""The least width of a bar, and of a gap between two bars, in pixels; bars with a narrower gap are joined."""
KEY = {"data": "data", "forward": "forward", "backward": "backward", "update": "update", "idle": "idle"}
"""Class of a bar -> its meaning."""


def timeline(trace: Trace, name: str, length: float | None = None) -> Element:
    """Draws the fastest step of a trace.

    Args:
        trace: The trace of a run.
        name: The name of the run.
        length: The length of the axis in microseconds, if several drawings share it. Each device then also has a line with its
            times, and shapes have attributes with their times, which a page needs to zoom.
    """
    step = trace.fastest()
    start, end = trace.bounds(step)
    devices = trace.devices[:MOST_DEVICES]
    gap = _GAP if length is None else _GAP + _TOTALS
    heights = [_BAR + _FLIGHT * min(_MOST_FLIGHTS, len(device.flights)) + gap for device in devices]
    height = _HEAD + sum(heights) + 40
    root = drawing(WIDTH, height, f"Timeline of {name}", _in_words(devices, step))
    _title(root, trace, name, step)
    _key(root)
    finest = (_RIGHT - _LEFT) / max(end - start, 1e-9)
    scale = finest if length is None else (_RIGHT - _LEFT) / max(length, 1e-9)
    _axis(put(root, "g", "ticks"), length or end - start, scale, height - 40)
    y = float(_HEAD)
    tops = []
    for device, each in zip(devices, heights, strict=True):
        group = put(root, "g", "device")
        group.set("data-device", device.name)
        _device(group, device, step, (start, scale, finest), y)
        if length is not None:
            write(group, _LEFT, y + each - _GAP - 2, _totals(device, step), "muted small")
        tops.append(y)
        y += each
    _arrows(root, devices, step, (start, scale), tops)
    if length is None:
        _forget_times(root)
    else:
        root.set("data-axis", f"{_LEFT:g} {_RIGHT:g} {length:.6g}")
    return root


def _title(root: Element, trace: Trace, name: str, step: int) -> None:
    start, end = trace.bounds(step)
    more = f", first {MOST_DEVICES} of {len(trace.devices)} devices" if len(trace.devices) > MOST_DEVICES else ""
    write(root, 16, 24, name, "title")
    told = f"traced step {step + 1} of {len(trace.steps)}: {_milliseconds(end - start)}{more}"
    write(root, 16, 42, told, "muted small")


def _forget_times(root: Element) -> None:
    """Removes what only a zooming page needs: the times, and the labels that have no room."""
    for parent in list(root.iter("g")):
        for each in list(parent):
            if each.attrib.pop("visibility", None):
                parent.remove(each)
            each.attrib.pop(_TIMES, None)


def _key(root: Element) -> None:
    x = 16.0
    for kind, words in (*KEY.items(), ("flight", "in flight: a transfer, and an arrow to where a message arrives")):
        put(root, "rect", kind, x=x, y=52, width=10, height=10 if kind != "flight" else 5)
        write(root, x + 14, 61, words, "muted small")
        x += 30 + 6.2 * len(words)


def _axis(root: Element, length: float, scale: float, bottom: float) -> None:
    """Draws at most eight ticks from 0, at round numbers of milliseconds."""
    rough = length / 1000 / 7
    tick = round_step(rough) if rough > 0 else 1.0
    for number in range(int(length / 1000 / tick) + 1):
        x = _LEFT + number * tick * 1000 * scale
        stroke(root, "line", [(x, _HEAD - 4), (x, bottom + 4)])
        write(root, x, bottom + 18, f"{number * tick:g}", "muted small middle")
    write(root, _LEFT - 12, bottom + 18, "ms", "muted small end")


def _device(root: Element, device: Device, step: int, at: tuple[float, float, float], y: float) -> None:
    write(root, 16, y + 15, device.name, "strong")
    is_one_stage = len({span.stage for span in device.lanes["compute"]} - {None}) == 1
    for lane in ("idle", "data", "compute"):
        for span in _drawn([span for span in device.lanes.get(lane, ()) if span.step == step], at[2]):
            kind = lane if lane != "compute" else _kind(span.name)
            _bar(root, span, kind, at, (y, _BAR), is_one_stage)
    for number, lane in enumerate(device.flights):
        top = y + _BAR + 1 + _FLIGHT * min(number, _MOST_FLIGHTS - 1)
        for span in (span for span in lane if span.step == step):
            _bar(root, span, "flight", at, (top, _FLIGHT - 2))


def _kind(name: str) -> str:
    return next((kind for kind in ("forward", "backward", "update") if name.startswith(kind)), "forward")


def _drawn(spans: Sequence[Span], scale: float) -> list[Span]:
    """Returns spans that are wide enough to be seen; a span that is too close to the one before it is joined to it."""
    found: list[Span] = []
    for span in spans:
        last = found[-1] if found else None
        if last and (span.start - last.end) * scale < _NARROWEST:
            narrow = (span.end - span.start) * scale < _NARROWEST
            if narrow or (_kind(span.name), span.microbatch) == (_kind(last.name), last.microbatch):
                found[-1] = dataclasses.replace(last, end=max(last.end, span.end))
                continue
        found.append(span)
    return found


def _bar(
    root: Element,
    span: Span,
    kind: str,
    at: tuple[float, float, float],
    place: tuple[float, float],
    is_one_stage: bool = True,
) -> None:
    (start, scale, _), (top, height) = at, place
    x, width = _LEFT + (span.start - start) * scale, max((span.end - span.start) * scale, _NARROWEST)
    bar = put(root, "rect", kind, x=round(x, 2), y=top, width=round(width, 2), height=height)
    times = f"{span.start - start:.6g} {span.end - span.start:.6g}"
    bar.set(_TIMES, times)
    size = f", {span.bytes:,} bytes" if span.bytes is not None else ""
    part = _label(span, is_one_stage)
    put(bar, "title").text = f"{span.name}{' ' + part if part else ''}, {_milliseconds(span.end - span.start)}{size}"
    if part:
        label = write(root, round(x + width / 2, 2), top + height / 2 + 4, part, f"label-{kind} middle small")
        label.set(_TIMES, times)
        if width < _LABEL + 3 * (len(part) - 1):
            label.set("visibility", "hidden")


def _label(span: Span, is_one_stage: bool) -> str:
    """Returns the label of a span: its micro-batch, preceded by its stage if a rank has several stages."""
    if span.microbatch is None:
        return ""
    return str(span.microbatch) if is_one_stage else f"{span.stage}:{span.microbatch}"


def _arrows(
    root: Element, devices: Sequence[Device], step: int, at: tuple[float, float], tops: Sequence[float]
) -> None:
    """Draws an arrow for each message, from its sender to the point where it has arrived."""
    ends: dict[Hashable, dict[bool, tuple[Span, float]]] = collections.defaultdict(dict)
    for device, top in zip(devices, tops, strict=True):
        for span in device.transfers:
            if span.step == step and " to " in span.meeting:
                ends[span.meeting][span.name == "receive"] = span, top + _BAR / 2
    for both in (each for each in ends.values() if len(each) == 2):
        (sent, here), (received, there) = both[False], both[True]
        points = [(_LEFT + (sent.start - at[0]) * at[1], here), (_LEFT + (received.end - at[0]) * at[1], there)]
        arrow = stroke(put(root, "g"), "arrow", points, 0.8)
        arrow.set(_TIMES, f"{sent.start - at[0]:.6g} {received.end - sent.start:.6g}")


def _milliseconds(microseconds: float) -> str:
    value = microseconds / 1000
    return f"{value:,.0f} ms" if value >= 99.95 else f"{value:.3g} ms"


def _in_words(devices: Sequence[Device], step: int) -> str:
    """Returns the times of each device, for readers who cannot see the drawing."""
    return ". ".join(f"{device.name}: {_totals(device, step)}" for device in devices) + "."


def _totals(device: Device, step: int) -> str:
    """Returns how long each lane of a device was busy in a step; transfers in flight at the same time are all counted."""
    totals = collections.defaultdict[str, float](float)
    for lane, spans in device.lanes.items():
        totals[lane.partition(" ")[0]] += sum(span.end - span.start for span in spans if span.step == step)
    return ", ".join(f"{lane} {_milliseconds(total)}" for lane, total in totals.items())

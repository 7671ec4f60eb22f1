"""The section on what each device holds by class of memory, measured and predicted."""

import dataclasses
import itertools
from collections.abc import Sequence

from markupsafe import Markup

from samestep.common import memory
from samestep.common.errors import count
from samestep.common.ledger import Footprint
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.axes import AxisScale, in_bytes
from samestep.experiments.page.loaded import Facet, Loaded
from samestep.experiments.page.plots import Line, Mark, Plot, mark, render_figures
from samestep.experiments.printing.text import sharing, size

_FIRST = (memory.PARAMETERS, memory.GATHERED, memory.GRADIENTS, memory.OPTIMIZER_STATE)
CLASSES = (*_FIRST, memory.RESIDUALS, memory.ACTIVATIONS)
"""The classes that a bar consists of, from its start."""
UNKNOWN = "unknown"
"""The kind of the mark at the end of a bar that lacks a class."""
_UNKNOWN_SHARE = 0.05
"""The length of that mark, as a share of the longest bar."""


@dataclasses.dataclass(frozen=True)
class DeviceBytes:
    """The bytes of devices of a row that hold the same.

    Attributes:
        devices: Their numbers, from 0.
        measured: The measured bytes by class.
        predicted: The predicted bytes by class; None if devices were not predicted one by one.
    """

    devices: tuple[int, ...]
    measured: tuple[int | None, ...]
    predicted: tuple[int | None, ...] | None


def write(loaded: Loaded) -> Markup | None:
    """Makes the section."""
    return render_figures(loaded, "memory", plot, {"swatches": swatches(loaded.results)})


def swatches(results: Sequence[RunResult]) -> list[tuple[str, str]]:
    """Returns the classes of memory that some of these runs hold, each with its name."""
    measured = [result for result in results if not result.compiled]
    parts = [part for result in measured for each in held(result) for part in (each.measured, each.predicted) if part]
    found = [(of.kind, of.title or of.name) for number, of in enumerate(CLASSES) if any(part[number] for part in parts)]
    if any(map(_lacks, parts)):
        found.append((UNKNOWN, "activations that nobody measured or predicted: the bar goes on"))
    return found


def held(result: RunResult) -> list[DeviceBytes]:
    """Returns the bytes of the devices of a run; devices that hold the same are one entry."""
    expected = [_bytes(each) for each in result.predicted.devices()]
    found = [_bytes(row) for row in result.processes]
    pairs = zip(found, expected if len(expected) == len(found) else itertools.repeat(None), strict=False)
    groups = sharing((pair, number) for number, pair in enumerate(pairs))
    return [DeviceBytes(tuple(devices), *pair) for pair, devices in groups.items()]


def _bytes(row: Footprint) -> tuple[int | None, ...]:
    return tuple(each.held(row) for each in CLASSES)


def plot(facet: Facet) -> Plot | None:
    """Makes the figure of a facet; None if no row holds anything."""
    devices = [(entry, each, result) for entry, result in facet.rows if not result.compiled for each in held(result)]
    if not devices:
        return None
    totals = [_total(part) for _, each, _ in devices for part in (each.measured, each.predicted) if part]
    room = 1 + _UNKNOWN_SHARE * any(_lacks(each.measured) or _lacks(each.predicted) for _, each, _ in devices)
    axis, unit = in_bytes([room * total for total in totals])
    drawn = [Line(entry, _marks(axis, each), _said(each), _about(each, len(r.processes))) for entry, each, r in devices]
    fullest = max(devices, key=lambda device: _total(device[1].measured))
    most = size(_total(fullest[1].measured))
    rows = count(len(facet.rows), "row")
    alt = f"Memory of a device by class, {rows}, {facet.title}; the longest bar, {most}, is that of {fullest[0].name}."
    return Plot(alt, facet.title, axis, f"{unit} of a device", drawn, "bytes")


def _total(parts: Sequence[int | None]) -> int:
    return sum(part or 0 for part in parts)


def _about(each: DeviceBytes, num_devices: int) -> str:
    """Returns the devices that a line shows, in words; "" for a single device."""
    if len(each.devices) == num_devices:
        return "" if num_devices == 1 else f"each of {num_devices} devices"
    first, last = each.devices[0], each.devices[-1]
    if len(each.devices) == 1:
        return f"device {first}"
    together = ", ".join(map(str, each.devices)) if last - first >= len(each.devices) else f"{first} to {last}"
    return f"devices {together}"


def _marks(axis: AxisScale, each: DeviceBytes) -> list[Mark]:
    bars = _bar(axis, each.measured, "measured")
    return bars + (_bar(axis, each.predicted, "predicted") if each.predicted else [])


def _bar(axis: AxisScale, parts: Sequence[int | None], kind: str) -> list[Mark]:
    ends = list(itertools.accumulate((part or 0 for part in parts), initial=0))
    places = zip(CLASSES, parts, ends, ends[1:], strict=False)
    bars = [
        mark(f"bar {kind} {of.kind}", axis, start, end, {"data-value": part}, f"{of.title or of.name}, {kind}")
        for of, part, start, end in places
        if part
    ]
    if _lacks(parts):
        bars.append(mark(f"bar {kind} {UNKNOWN}", axis, ends[-1], ends[-1] + _UNKNOWN_SHARE * axis.high))
    return bars


def _lacks(parts: Sequence[int | None] | None) -> bool:
    """Returns whether a class is missing, so the bar is not a total."""
    return parts is not None and None in parts


def _said(each: DeviceBytes) -> dict[str, object]:
    """Returns the total, a lower bound if a class is missing, and the predicted total if it differs."""
    differs = each.predicted is not None and each.predicted != each.measured
    return {
        "total": _spell(each.measured),
        "is_measured": not _lacks(each.measured),
        "is_predicted": each.predicted is not None,
        "predicted": _spell(each.predicted) if each.predicted and differs else "",
    }


def _spell(parts: Sequence[int | None]) -> str:
    return ("at least " if _lacks(parts) else "") + size(_total(parts))

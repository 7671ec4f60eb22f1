"""What each device holds, by class, measured beside predicted."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from xml.etree.ElementTree import Element

from samestep.common.ledger import Footprint
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.axes import Axis, in_bytes
from samestep.experiments.page.loaded import Facet, Loaded
from samestep.experiments.page.markup import Child, element
from samestep.experiments.page.plots import Line, figure, for_facets, key, lines, mark, meaning
from samestep.experiments.text import size

CLASSES: Mapping[str, tuple[str, Callable[[Footprint], int | None]]] = {
    "params": ("parameters", lambda row: row.params_bytes),
    "gathered": ("parameters gathered for a moment", lambda row: row.params_peak_bytes - row.params_bytes),
    "gradients": ("gradients", lambda row: row.gradients_bytes),
    "optimizer": ("optimizer state", lambda row: row.optimizer_bytes),
    "residuals": ("residuals of compression", lambda row: row.residuals_bytes),
    "activations": ("activations", lambda row: row.activations_bytes),
}
"""Class in the style sheet -> its name, and its bytes on a device; None if nobody counted or predicts them."""
_MEANING = (
    "The upper bar of a device is measured, the lower, thin one is predicted by arithmetic. Each class is at its own peak, so a "
    "bar is an upper bound of what is held at once. Devices that hold the same share a line."
)


@dataclasses.dataclass(frozen=True)
class Held:
    """What some devices of a row hold.

    Attributes:
        devices: Their numbers, from 0.
        measured: Bytes by class.
        predicted: Likewise; None where devices were not predicted one by one.
    """

    devices: tuple[int, ...]
    measured: tuple[int | None, ...]
    predicted: tuple[int | None, ...] | None


def write(loaded: Loaded) -> Element | None:
    """Makes the section."""
    return for_facets(loaded, _figure, meaning(_MEANING), key(*((kind, name) for kind, (name, _) in CLASSES.items())))


def held(result: RunResult) -> list[Held]:
    """What the devices of a run hold; those that hold the same together."""
    expected = [_bytes(each) for each in result.predicted.devices()]
    found = [_bytes(row) for row in result.processes]
    pairs = zip(found, expected if len(expected) == len(found) else itertools.repeat(None), strict=False)
    groups: dict[tuple[tuple[int | None, ...], tuple[int | None, ...] | None], list[int]] = {}
    for number, pair in enumerate(pairs):
        groups.setdefault(pair, []).append(number)
    return [Held(tuple(devices), *pair) for pair, devices in groups.items()]


def _bytes(row: Footprint) -> tuple[int | None, ...]:
    return tuple(value(row) for _, value in CLASSES.values())


def _figure(facet: Facet) -> Element | None:
    devices = [(entry, each, result) for entry, result in facet.rows if not result.compiled for each in held(result)]
    if not devices:
        return None
    totals = [_total(part) for _, each, _ in devices for part in (each.measured, each.predicted) if part]
    axis, unit = in_bytes(totals)
    drawn = [Line(entry, _marks(axis, each), _said(each), _about(each, len(r.processes))) for entry, each, r in devices]
    fullest = max(devices, key=lambda device: _total(device[1].measured))
    most = size(_total(fullest[1].measured))
    alt = f"Memory of a device by class, {len(facet.rows)} rows, {facet.title}; a device of {fullest[0].name} holds most: {most}."
    return figure(alt, facet.title, lines(axis, f"{unit} of a device", drawn), class_="memory")


def _total(parts: Sequence[int | None]) -> int:
    return sum(part or 0 for part in parts)


def _about(each: Held, count: int) -> str:
    """Which devices a line is of; "" if all."""
    if len(each.devices) == count:
        return "" if count == 1 else f"each of {count} devices"
    first, last = each.devices[0], each.devices[-1]
    if len(each.devices) == 1:
        return f"device {first}"
    together = ", ".join(map(str, each.devices)) if last - first >= len(each.devices) else f"{first} to {last}"
    return f"devices {together}"


def _marks(axis: Axis, each: Held) -> list[Element]:
    bars = _bar(axis, each.measured, "measured")
    return bars + (_bar(axis, each.predicted, "predicted") if each.predicted else [])


def _bar(axis: Axis, parts: Sequence[int | None], kind: str) -> list[Element]:
    ends = list(itertools.accumulate((part or 0 for part in parts), initial=0))
    places = zip(CLASSES, parts, ends, ends[1:], strict=False)
    return [mark(f"bar {kind} {name}", axis, start, end, data_value=part) for name, part, start, end in places if part]


def _said(each: Held) -> list[Child]:
    number, expected = _total(each.measured), each.predicted and _total(each.predicted)
    if expected is None:
        return [element("b", size(number)), element("small", " not predicted")]
    known = [part is not None for part in each.predicted or ()] == [part is not None for part in each.measured]
    agrees = " as predicted" if number == expected else f" predicted {size(expected)}"
    return [element("b", size(number)), element("small", agrees if known else f"{agrees}, activations in one only")]

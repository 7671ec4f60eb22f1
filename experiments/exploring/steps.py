"""A step as the page plays it, measured or predicted: what each device holds, and which shards move along which links.

Each exchange has a sentence on what happens in it, and why.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.costs.routes import RINGS, sends_by_place
from samestep.common.files.reading import read_toml
from samestep.common.ledger import PHASES, Footprint, Send
from samestep.common.mesh import AXES, Mesh
from samestep.common.strategy import Run
from samestep.experiments.advising.prediction import Prediction
from samestep.experiments.page.drawings.device_bars import CLASSES, device_names, held_from, share, whole_bytes
from samestep.experiments.page.drawings.transfer_marks import amount
from samestep.experiments.page.drawings.transfers import DrawnTransfer, Route, transfers
from samestep.experiments.printing.text import size

if TYPE_CHECKING:
    from samestep.common.runtime.records import DeviceRow  # it needs NumPy, which a prediction does without

BEGINNING: Mapping[str, str] = {
    "forward": "Each device computes its part of the model on its part of the batch.",
    "backward": "The gradients are computed, from the last layer to the first.",
    "update": "The devices that hold optimizer state update the parameters.",
}
"""Phase -> what devices compute in it."""
NOTHING_SENT = "Nothing is sent."
_SENTENCES: Mapping[str, Mapping[str, Mapping[str, str]]] = read_toml(Path(__file__).with_name("sentences.toml"))  # pyrefly: ignore
"""The dimension that the axis of an exchange cuts, or "plain" -> phase -> operation -> the sentence."""
MOST_MOVES = 24
"""The most exchanges of a step that are played one by one; in a step with more, equal ones are played together."""
_EVEN = 0.02
"""The relative deviation from 1/n of the whole up to which a part is still called one of n, since shards are padded."""
MANY = 10_000
"""More than the number of stages, and than the number of messages of a stage in a phase."""
Link = tuple[int, int]
"""The places of a sending and of a receiving device."""


def played(run: Run, rows: "Sequence[PredictedDevice] | Sequence[DeviceRow]", sent_bytes: float) -> dict[str, object]:
    """Returns a step as values for JSON.

    Args:
        run: The run.
        rows: Its devices, with what they hold and send.
        sent_bytes: The bytes that all processes together put on the wire.
    """
    moves = sorted(transfers(run.mesh, rows, MOST_MOVES), key=lambda each: PHASES.index(each.phase))
    kept = [row.activations_bytes for row in rows if row.activations_bytes is not None]
    names, lacking = device_names(rows), "not predicted" if isinstance(rows[0], PredictedDevice) else "not measured"
    return {
        "mesh": str(run.mesh),
        "wholes": whole_bytes(run),
        "devices": [[name, *each] for name, each in zip(names, _held(run, rows, lacking), strict=True)],
        "moves": [_move(each, rows) for each in moves],
        "totals": [
            _said(max(row.state_bytes for row in rows)),
            _said(max(kept, default=None), lacking),
            _said(sent_bytes),
        ],
    }


def _said(count: float | None, lacking: str = "") -> list[object]:
    return [None, lacking] if count is None else [round(count), size(count)]


def _held(run: Run, rows: Sequence[Footprint], lacking: str) -> Iterator[list[object]]:
    """Yields each device's part of the batch and of each class of memory, and its activations."""
    wholes = whole_bytes(run)
    computing = next((place for place, row in enumerate(rows) if row.params_peak_bytes), 0)
    for place, (row, begins) in enumerate(zip(rows, held_from(run, rows), strict=True)):
        counts = [each.bytes_of(row) for each in CLASSES]
        held = [[at, count, _part(at, count, whole)] for at, count, whole in zip(begins, counts, wholes, strict=True)]
        peak = row.params_peak_bytes if row.params_peak_bytes > row.params_bytes else 0
        yield [_batch(run, place - computing), held, [peak, size(peak)], _said(row.activations_bytes, lacking)]


def _part(begin: int, held: int, whole: int) -> str:
    """Returns how much a device holds: all, one of n equal parts, or a percentage if the parts are not equal."""
    parts = round(whole / held) if held else 1
    if parts == 1 or abs(parts * held / whole - 1) > _EVEN:
        return share(held, whole)
    return f"{size(held)}, {round(begin / held) + 1} of {parts}"


def _batch(run: Run, place: int) -> str:
    """Returns which part of the batch a device takes; "" for a device that computes nothing."""
    if not 0 <= place < run.num_devices:
        return ""
    parts, positions = run.mesh.replicas, run.mesh.parts("positions")
    each, part = run.batch_size // parts, run.mesh.part(place, "examples")
    told = f"examples {part * each + 1} to {(part + 1) * each}" if parts > 1 else f"all {run.batch_size} examples"
    if run.asked.is_serial:
        told = f"all {run.batch_size} examples, in turn"
    if positions > 1:
        told += f", positions {run.mesh.part(place, 'positions') + 1}/{positions}"
    return told + (f", {run.microbatches} micro-batches" if run.microbatches > 1 else "")


def _move(each: DrawnTransfer, rows: Sequence[Footprint]) -> list[object]:
    links = dict.fromkeys(link for path in each.paths for link in _links(each, _addressed(each, path, rows)))
    spelled = " ".join(f"{start}-{end}" for start, end in links)
    one = round(each.bytes / each.count)
    told = [size(one), amount(each), sentence(each)]
    return [PHASES.index(each.phase), each.operation, each.group, spelled, one, *told, round(each.bytes)]


def _addressed(each: DrawnTransfer, path: Route, rows: Sequence[Footprint]) -> Route:
    """Returns the senders and receivers of an exchange recorded without them, if devices borrow the parameters of others."""
    borrowers = tuple(place for place, row in enumerate(rows) if row.params_peak_bytes and not row.params_bytes)
    if path[0] != path[1] or not borrowers or each.operation in RINGS:
        return path
    holders = tuple(place for place, row in enumerate(rows) if row.params_bytes)
    is_handed_out = each.operation.startswith("scatter") or (
        each.phase == PHASES[0] and not each.operation.startswith("gather")
    )
    return (holders, borrowers) if is_handed_out else (borrowers, holders)


def _links(each: DrawnTransfer, path: Route) -> Iterator[Link]:
    """Yields the links that the shards of an exchange move along: around a ring, or from every sender to every receiver."""
    senders, receivers = path
    if senders == receivers and each.operation in RINGS:
        yield from zip(senders, (*senders[1:], senders[0]), strict=True) if len(senders) > 1 else ()
    else:
        yield from ((start, end) for start, end in itertools.product(senders, receivers) if start != end)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictedDevice(Footprint):
    """A predicted device.

    Attributes:
        role: The name of its process, or another role, as in "server-0".
        rank: The rank of its process.
        sends: Its sends in a step, in order.
    """

    role: str
    rank: int
    sends: tuple[Send, ...] = ()


def predicted_devices(prediction: Prediction) -> list[PredictedDevice]:
    """Distributes a prediction over the devices.

    Args:
        prediction: The prediction of a row.
    """
    run, held = prediction.run, list(prediction.ledger.devices())
    roles = [process.role for process in run.strategy.topology(run)]
    by_place = list(sends_by_place(run, prediction.ledger, prediction.backend))
    places = []
    for index, each in enumerate(held):
        process = index * len(roles) // len(held)
        number = sum(other.device == each.device for other in held[:index])
        name = f"CPU:{index}" if each.device == "each" else f"{each.device}:{number}"
        sends = _in_order(by_place[index], index, run.mesh) if index < len(by_place) else ()
        footprint = {field.name: getattr(each, field.name) for field in dataclasses.fields(Footprint)}
        places.append(PredictedDevice(**footprint | {"device": name}, role=roles[process], rank=process, sends=sends))
    return places


def _in_order(sends: Sequence[Send], place: int, mesh: Mesh) -> tuple[Send, ...]:
    """Returns the sends of a device; those of pipeline stages are ordered among all devices, since a stage waits for another."""
    if any(send.operation != "send" for send in sends):
        return tuple(sends)
    stages, stage, found = mesh.parts("layers"), mesh.part(place, "layers"), list[Send]()
    for send in sends:
        sent = sum(each.phase == send.phase for each in found)
        waits = stage if send.phase == PHASES[0] else stages - stage if int(send.to) < place else 0
        at = float((PHASES.index(send.phase) * MANY + waits + 1) * MANY + sent)
        found.append(dataclasses.replace(send, at=at))
    return tuple(found)


def sentence(each: DrawnTransfer) -> str:
    """Returns the purpose of an exchange, as a sentence.

    Args:
        each: The exchange.
    """
    cut = {dimension for name in each.group.split(",") if name in AXES for dimension in AXES[name].cuts}
    for kind, phases in _SENTENCES.items():
        said = phases.get(each.phase, {}).get(each.operation)
        if said and kind in (*cut, "plain"):
            return said
    return "Devices exchange numbers."

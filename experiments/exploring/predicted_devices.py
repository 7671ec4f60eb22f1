"""The devices of a predicted step, one by one, in the form of a run's records: what each holds and sends."""

import dataclasses
from collections.abc import Sequence

from samestep.common.costs.routes import sends_by_place
from samestep.common.ledger import PHASES, Footprint, Send
from samestep.common.mesh import Mesh
from samestep.experiments.advising.prediction import Prediction

MANY = 10_000
"""A number larger than that of the messages of a stage in a phase, and of stages."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictedDevice(Footprint):
    """A predicted device.

    Attributes:
        role: The name of its process, or its role for the others, as in "server-0".
        rank: The rank of its process.
        sends: What it sends in a step, in order.
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
    """Returns what a device sends, in an order among all devices where these are stages: one waits for the one before it."""
    if any(send.operation != "send" for send in sends):
        return tuple(sends)
    stages, stage, found = mesh.parts("layers"), mesh.part(place, "layers"), list[Send]()
    for send in sends:
        sent = sum(each.phase == send.phase for each in found)
        waits = stage if send.phase == PHASES[0] else stages - stage if int(send.to) < place else 0
        at = float((PHASES.index(send.phase) * MANY + waits + 1) * MANY + sent)
        found.append(dataclasses.replace(send, at=at))
    return tuple(found)

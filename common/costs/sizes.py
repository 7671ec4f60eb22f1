"""What cost models share: the footprint of a device, the bytes of an example, and the bytes that a rank sends in an exchange.

References:
    Patarasuk and Yuan 2009 (the bound of the all-reduce); NVIDIA nccl-tests PERFORMANCE.md.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping

from samestep.common.costs.optimizer_state import optimizer_bytes, state_bytes
from samestep.common.frameworks import conventions
from samestep.common.ledger import Footprint, Ledger, Send, in_order
from samestep.common.strategy import Run
from samestep.common.techniques.used import used
from samestep.common.workload.models.parameters import num_trained, trained, with_gradients
from samestep.common.workload.models.spec import ArraySpec, ModelSpec, Param

ID_BYTES = 8
"""Ids, and targets that are classes, are int64 in every framework."""
FLAG_BYTES = 4
"""torch sums flags as int32, in every dtype of a run."""


@dataclasses.dataclass(frozen=True)
class Framing:
    """What a backend sends in addition to the tensors, as the kernel counts it.

    Attributes:
        message_bytes: The bytes for each message: headers, and the request that it answers.
        messages: Operation -> the messages that each rank sends to each other one. For a broadcast, only the root sends.
    """

    message_bytes: int
    messages: Mapping[str, int]


MESSAGES = {"all_reduce": 4, "reduce_scatter": 4, "all_gather": 2, "all_to_all": 1, "broadcast": 1, "send": 1}
"""Operation -> the messages that it takes over gloo, whose rings work in two halves."""
FRAMING = {
    "gloo": Framing(144, MESSAGES),
    "grpc": Framing(324, {"all_reduce": 2, "all_gather": 1, "all_to_all": 1}),
}
"""The framing of torch 2.13 and tensorflow 2.21. That of NCCL is not predicted."""
KEY_BYTES = 98
"""A collective of TensorFlow's strategies has a new key in each step (tensorflow 2.21), for which every process asks the first
one. These are the bytes of the request and of its reply, as the mean over two to four processes."""
_ALIGNED_BYTES = 64
"""TensorFlow rounds the parts of its rings up to a multiple of this many bytes (`CollectiveAdapter::AlignedChunkElts`, 2.21)."""


def holder(
    run: Run,
    elements: int,
    device: str = "each",
    count: int = 1,
    trained: int | None = None,
    optimizer_state: int | None = None,
    num_gradients: int | None = None,
) -> Footprint:
    """Returns the footprint of devices that hold parameters with their gradients and optimizer state.

    Args:
        run: What is trained.
        elements: The number of elements of the parameters.
        device: The name of the device.
        count: The number of devices.
        trained: How many of the elements are not frozen; by default all.
        optimizer_state: The bytes of optimizer state; by default the share of these elements in the state of all parameters.
        num_gradients: How many of the elements have a gradient; by default the same share as of all parameters.
    """
    held, learning = elements * run.item_bytes, elements if trained is None else trained
    if num_gradients is None:
        num_gradients = round(learning * _reached(run.workload.model))
    return Footprint(
        device=device,
        params_bytes=held,
        params_peak_bytes=held,
        gradients_bytes=num_gradients * run.item_bytes,
        optimizer_bytes=optimizer_bytes(run, learning) if optimizer_state is None else optimizer_state,
        count=count,
    )


@functools.lru_cache(maxsize=8)
def _reached(model: ModelSpec) -> float:
    """Returns the share of the trained numbers that have a gradient: all but those that no step reads."""
    learning = trained(model.params()).values()
    return num_trained(with_gradients(learning)) / num_trained(learning) if learning else 1.0


def holder_of(run: Run, params: Iterable[Param], device: str = "each", count: int = 1) -> Footprint:
    """Returns the footprint of devices that hold some whole parameters, of which some may be frozen.

    Args:
        run: What is trained.
        params: The parameters that they hold.
        device: The name of the device.
        count: The number of devices.
    """
    held = list(params)
    return holder(run, sum(param.size for param in held), device, count, num_trained(held), state_bytes(run, held))


def borrower(device: str, peak: int, gradients: int, count: int = 1) -> Footprint:
    """Returns the footprint of devices that have parameters only within a step.

    Args:
        device: The name of the device.
        peak: The bytes of the parameters.
        gradients: The bytes of the gradients.
        count: The number of devices.
    """
    return Footprint(
        device=device,
        params_bytes=0,
        params_peak_bytes=peak,
        gradients_bytes=gradients,
        optimizer_bytes=0,
        count=count,
    )


def example_bytes(array: ArraySpec, item_bytes: int) -> int:
    """Returns the bytes of the arrays of one example.

    Args:
        array: The spec of the array.
        item_bytes: The bytes of a real number; ids have their own size.
    """
    if array.several:
        return sum(example_bytes(one, item_bytes) for _, one in array.several)
    return math.prod(array.shape) * (item_bytes if array.ids is None else ID_BYTES)


def all_reduce_bytes(size: float, ranks: int) -> float:
    """Returns what each rank sends in an all-reduce of `size` bytes; the rings of gloo, NCCL and TensorFlow all reach the bound.

    Args:
        size: The bytes that are summed.
        ranks: The number of ranks that take part.
    """
    return 2 * (ranks - 1) / ranks * size


def sent_bytes(send: Send, backend: str, item_bytes: int) -> float:
    """Returns what a rank puts on the wire for one record of its sends, framing included.

    In a reduce-scatter and an all-to-all each rank keeps 1/N of its input; gloo's reduce-scatter (torch 2.13) is an all-reduce
    inside. In an all-gather each rank contributes its part. A send goes from one rank to another. For a broadcast, the bytes
    are the mean over all ranks.

    Args:
        send: The record, whose operation is one of the backend's `messages`.
        backend: The backend that carries it; one that is not in `FRAMING` sends tensors alone.
        item_bytes: The bytes of one number of the run.
    """
    size, others = send.bytes, 1 if send.operation == "send" else send.ranks - 1
    payload = {
        "all_reduce": all_reduce_bytes(size, send.ranks),
        "all_gather": others * size,
        "all_to_all": others / send.ranks * size,
        "reduce_scatter": all_reduce_bytes(size, send.ranks) if backend == "gloo" else others / send.ranks * size,
        "broadcast": others * size,
        "send": size,
    }[send.operation]
    sent = payload + _framing_bytes(send, backend, send.item_bytes or item_bytes)
    return sent / send.ranks if send.operation == "broadcast" else sent


def _framing_bytes(send: Send, backend: str, item_bytes: int) -> float:
    """Returns the bytes of framing of one record, before those of a broadcast are divided among the ranks."""
    framing, others = FRAMING.get(backend), 1 if send.operation == "send" else send.ranks - 1
    if framing is None:
        return 0
    share = _filled(send.bytes / send.count, send.ranks, backend, item_bytes) if send.operation == "all_reduce" else 1.0
    return share * send.count * framing.messages[send.operation] * others * framing.message_bytes


def _filled(size: float, ranks: int, backend: str, item_bytes: int) -> float:
    """Returns the share of a ring's parts that hold a number of a small tensor; the other parts are not sent."""
    if backend == "gloo":
        return min(1.0, size / item_bytes / (2 * ranks))
    part = math.ceil(size / ranks)
    return math.ceil(size / (part - part % _ALIGNED_BYTES + _ALIGNED_BYTES)) / ranks


def agreement(run: Run) -> list[Send]:
    """Returns the exchanges by which ranks agree on what techniques need, once a step before the update."""
    return [send for each in used(run.techniques) for send in each.sends_before_update(run)]


def reached(run: Run, num_params: int, axis: str, ranks: int) -> list[Send]:
    """Predicts how ranks exchange which parameters of a user's model got a gradient: one number each, if some may get none.

    Args:
        run: What is trained.
        num_params: The number of parameters that are asked about.
        axis: The axis along which ranks exchange gradients.
        ranks: The number of ranks.
    """
    if ranks == 1 or not run.workload.model.facts.may_skip or not conventions(run.framework).agrees_on_gradients:
        return []
    return [Send("backward", "all_reduce", axis, ranks, num_params * FLAG_BYTES, item_bytes=FLAG_BYTES)]


def with_agreement(run: Run, sends: Iterable[Send]) -> list[Send]:
    """Inserts what ranks agree on before the update: which parameters got a gradient, and what techniques need.

    Args:
        run: What is trained.
        sends: The sends, in order.
    """
    every = list(sends)
    update = next((number for number, send in enumerate(every) if send.phase == "update"), len(every))
    ranks = run.num_devices // run.mesh.parts("features")  # along `tensor`, every rank sees the whole batch
    on = reached(run, len(trained(run.workload.model.params())), run.mesh.only_axis, ranks)
    return [*every[:update], *on, *agreement(run), *every[update:]]


def symmetric(run: Run, footprints: tuple[Footprint, ...], sends: Iterable[Send], backend: str) -> Ledger:
    """Returns the ledger of devices that all send the same.

    Args:
        run: What is trained.
        footprints: The footprints of the devices.
        sends: What each device sends, in order; with local steps, in the last step of a period.
        backend: The backend that carries the sends; "memory" has no wire.
    """
    told, sent = in_order(sends), 0.0
    if backend != "memory":
        sent = run.num_devices * sum(sent_bytes(send, backend, run.item_bytes) for send in told)
    return Ledger(footprints, told, sent / run.techniques.steps_of_period)

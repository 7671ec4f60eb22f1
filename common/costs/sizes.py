"""What cost models share: what a device holds, what an example takes, and what a rank sends in an exchange.

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
from samestep.common.request import DTYPES
from samestep.common.strategy import Run
from samestep.common.techniques.used import used
from samestep.common.workload.models.parameters import num_trained, trained
from samestep.common.workload.models.spec import ArraySpec, ModelSpec, Param

ID_BYTES = 8
"""Ids, and targets that are classes, are int64 in every framework."""


@dataclasses.dataclass(frozen=True)
class Framing:
    """What a backend sends beside the tensors, counted by the kernel.

    Attributes:
        message_bytes: For each message: headers, and the request that it answers.
        messages: Operation -> the messages that each rank sends to each other one. Those of a broadcast come from one rank.
    """

    message_bytes: int
    messages: Mapping[str, int]


MESSAGES = {"all_reduce": 4, "reduce_scatter": 4, "all_gather": 2, "all_to_all": 1, "broadcast": 1, "send": 1}
"""Every operation, with the messages that it takes over gloo, whose rings work in two halves."""
FRAMING = {
    "gloo": Framing(144, MESSAGES),
    "grpc": Framing(324, {"all_reduce": 2, "all_gather": 1, "all_to_all": 1}),
}
"""Of torch 2.13 and tensorflow 2.21. NCCL has its own ways, which are not predicted."""
KEY_BYTES = 98
"""A collective of TensorFlow's strategies has a new key in each step (tensorflow 2.21), which every process asks the first one
about: a request and its reply, as the mean over two to four processes."""
_ALIGNED_BYTES = 64
"""To more than which TensorFlow rounds the parts of its rings up (`CollectiveAdapter::AlignedChunkElts`, 2.21)."""


def holder(
    run: Run,
    elements: int,
    device: str = "each",
    count: int = 1,
    trained: int | None = None,
    optimizer_state: int | None = None,
) -> Footprint:
    """Returns the footprint of devices that hold parameters with their gradients and optimizer state.

    Args:
        run: What is trained.
        elements: The number of elements of the parameters.
        device: The name of the device.
        count: How many there are.
        trained: How many of the elements are not frozen; all, unless given.
        optimizer_state: Its bytes; as many as these elements have their share of, unless given.
    """
    held, learning = elements * run.item_bytes, elements if trained is None else trained
    return Footprint(
        device=device,
        params_bytes=held,
        params_peak_bytes=held,
        gradients_bytes=round(learning * _reached(run.workload.model)) * run.item_bytes,
        optimizer_bytes=optimizer_bytes(run, learning) if optimizer_state is None else optimizer_state,
        count=count,
    )


@functools.lru_cache(maxsize=8)
def _reached(model: ModelSpec) -> float:
    """Returns how much of what is trained has a gradient: all but what nothing reads in any step."""
    learning = trained(model.params()).values()
    unused = sum(param.size for param in learning if param.skipped or not param.has_gradient)
    return 1 - unused / (num_trained(learning) or 1)


def holder_of(run: Run, params: Iterable[Param], device: str = "each", count: int = 1) -> Footprint:
    """Returns the footprint of devices that hold some whole parameters, of which some may be frozen.

    Args:
        run: What is trained.
        params: What they hold.
        device: The name of the device.
        count: How many there are.
    """
    held = list(params)
    return holder(run, sum(param.size for param in held), device, count, num_trained(held), state_bytes(run, held))


def borrower(device: str, peak: int, gradients: int, count: int = 1) -> Footprint:
    """Returns the footprint of devices that have parameters only within a step.

    Args:
        device: The name of the device.
        peak: The bytes of the parameters.
        gradients: The bytes of the gradients.
        count: How many there are.
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
    """Returns the bytes of one example's array, or of its several arrays.

    Args:
        array: The spec of the array.
        item_bytes: The bytes of a real number; ids have their own size.
    """
    if array.several:
        return sum(example_bytes(one, item_bytes) for _, one in array.several)
    return math.prod(array.shape) * (item_bytes if array.ids is None else ID_BYTES)


def all_reduce_bytes(size: float, ranks: int) -> float:
    """Returns an all-reduce of `size` bytes; the rings of gloo, NCCL and TensorFlow's collectives all reach the bound.

    Args:
        size: The bytes that are summed.
        ranks: The number of ranks that take part.
    """
    return 2 * (ranks - 1) / ranks * size


def sent_bytes(send: Send, backend: str, item_bytes: int) -> float:
    """Returns what a rank puts on the wire for one record of its sends, framing included.

    Of a reduce-scatter and of an all-to-all each rank keeps 1/N; gloo's reduce-scatter (torch 2.13) is an all-reduce
    inside. To an all-gather each rank hands over its part. A send goes from one rank to another. Of a broadcast it is the
    mean over all ranks.

    Args:
        send: Its operation is one of the backend's `messages`.
        backend: What carries it; what is not in `FRAMING` sends tensors alone.
        item_bytes: The bytes of one number.
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
    sent = payload + _framing_bytes(send, backend, item_bytes)
    return sent / send.ranks if send.operation == "broadcast" else sent


def _framing_bytes(send: Send, backend: str, item_bytes: int) -> float:
    """Returns what goes with the tensors of one record, before a broadcast's is divided among the ranks."""
    framing, others = FRAMING.get(backend), 1 if send.operation == "send" else send.ranks - 1
    if framing is None:
        return 0
    share = _filled(send.bytes / send.count, send.ranks, backend, item_bytes) if send.operation == "all_reduce" else 1.0
    return share * send.count * framing.messages[send.operation] * others * framing.message_bytes


def _filled(size: float, ranks: int, backend: str, item_bytes: int) -> float:
    """Returns the share of a ring's parts that have a number of a small tensor: nothing is sent of the others."""
    if backend == "gloo":
        return min(1.0, size / item_bytes / (2 * ranks))
    part = math.ceil(size / ranks)
    return math.ceil(size / (part - part % _ALIGNED_BYTES + _ALIGNED_BYTES)) / ranks


def agreement(run: Run) -> list[Send]:
    """Returns what techniques have ranks agree on, once a step ahead of the update."""
    return [send for each in used(run.techniques) for send in each.sends_before_update(run)]


def reached(run: Run, num_params: int, axis: str, ranks: int) -> list[Send]:
    """Predicts the exchange of which parameters of a user's model got a gradient: a number for each, where not all may.

    Args:
        run: What is trained.
        num_params: The number of parameters that are asked about.
        axis: The axis along which ranks exchange gradients.
        ranks: How many ranks.
    """
    if ranks == 1 or not run.workload.model.facts.may_skip or not conventions(run.framework).agrees_on_gradients:
        return []
    return [Send("backward", "all_reduce", axis, ranks, num_params * DTYPES["float32"])]


def with_agreement(run: Run, sends: Iterable[Send]) -> list[Send]:
    """Adds what ranks agree on to what each sends, ahead of the update: what got a gradient, and what techniques ask.

    Args:
        run: What is trained.
        sends: The sends, in order.
    """
    every = list(sends)
    update = next((number for number, send in enumerate(every) if send.phase == "update"), len(every))
    ranks = run.num_devices // run.mesh.parts("features")  # along which every rank sees the whole batch
    on = reached(run, len(trained(run.workload.model.params())), run.mesh.only_axis, ranks)
    return [*every[:update], *on, *agreement(run), *every[update:]]


def symmetric(run: Run, footprints: tuple[Footprint, ...], sends: Iterable[Send], backend: str) -> Ledger:
    """Returns the ledger of devices that all send alike.

    Args:
        run: What is trained.
        footprints: One per device.
        sends: What each device sends, in order; in the last step of a period, if it takes the others alone.
        backend: What carries them; "memory" has no wire.
    """
    told, sent = in_order(sends), 0.0
    if backend != "memory":
        sent = run.num_devices * sum(sent_bytes(send, backend, run.item_bytes) for send in told)
    return Ledger(footprints, told, sent / run.techniques.steps_of_period)

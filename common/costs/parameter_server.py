"""TensorFlow's servers hold the parameters: in every step a worker pulls those that it needs, and pushes its gradients back.

With P the bytes of the parameters that are read whole and R those of the rows that a batch looks up in tables, an update pulls
P + R and pushes P + R; it runs on the servers, so no optimizer state is sent. With K accumulation steps it pulls KP + R, since
each micro-batch reads the parameters again. A weight with a regularizer is read once more, and the weights of a recurrent layer
at each position. Running statistics are read and assigned by each micro-batch. A tied table is pulled whole, and its rows once
more, and its gradient is whole. In serial mode a step is one update on the global batch; in asynchronous mode it is one update
on each worker's shard. The chief sends each batch to the worker that takes it.

References:
    Li et al., OSDI 2014, "Scaling distributed machine learning with the parameter server"; Dean et al., NeurIPS 2012
    (DistBelief, asynchronous).
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from samestep.common.costs.sizes import ID_BYTES, borrower, example_bytes, holder
from samestep.common.features.used import keeps_buffers
from samestep.common.ledger import Footprint, Ledger, Send
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ignores_targets, layer
from samestep.common.workload.reductions import OWN


class _Calls(NamedTuple):
    """The approximate bytes, besides numbers, that tensorflow 2.21 sends one way in an update, by connection (`ss -ti`).

    Attributes:
        once: The bytes for the call itself.
        server: The bytes for each server.
        part: The bytes for each part of a variable.
        unchanged: The bytes fewer for each part that is read and not changed, such as a frozen weight.
        slot: The bytes for each slot of a part that is trained.
        table: The bytes for each part of a table.
    """

    once: int
    server: int
    part: int
    unchanged: int
    slot: int
    table: int

    def size(self, servers: int, parts: Sequence["_Part"], slots: int) -> float:
        """Returns the bytes to or from some of the servers, or all."""
        learning, tables = sum(part.has_gradient for part in parts), sum(part.lookups > 0 for part in parts)
        read = [part for part in parts if part.reads > 0]
        kept = sum(not part.is_pushed for part in read)
        calls = servers * self.server + len(read) * self.part - kept * self.unchanged
        return calls + learning * slots * self.slot + tables * self.table


_TO_WORKER, _TO_SERVER, _FROM_SERVER = (
    _Calls(1890, 60, 164, 105, 90, 0),
    _Calls(1600, 400, 415, 138, 98, 150),
    _Calls(540, 606, 298, 237, 0, 300),
)
_TO_CHIEF_BYTES, _BETWEEN_BYTES, _AGAIN_BYTES = 540, 280, 150
"""The bytes of a worker's answer in an update; those that the first server exchanges, in each direction, for each part of
another server that is changed; and those in each direction for each part that is read again, by a further micro-batch, a layer
that is called again or a turn of a loop.
"""
_LOOP_BYTES, _TURN_BYTES, _TURNED_BYTES = (1850, 1740), (705, 90), 80
"""The bytes that a worker sends to a server and gets back for each loop that reads parameters, as Keras' recurrent layers do,
and for each of its turns; and those in each direction for each part that it reads in a turn, in addition to _AGAIN_BYTES.
Requests contain the path of the layer, here that of an LSTM in a sequential model."""


class _Part(NamedTuple):
    """A part of a variable, on one server.

    Attributes:
        size: The number of its elements.
        is_trained: Whether it is trained, that is, not frozen.
        is_pushed: Whether a step computes a gradient of it, or moves it as a running buffer.
        reads: How often a pass reads it whole.
        lookups: The rows that an example looks up in it, as its share of the lookups in the table.
        row: The elements of a row.
        is_sparse: Whether only its rows are read, and its gradient has only those rows.
        is_buffer: Whether it is a buffer of a user's model instead of a parameter.
    """

    size: int
    is_trained: bool
    is_pushed: bool
    reads: int
    lookups: float
    row: int
    is_sparse: bool
    is_buffer: bool = False

    @property
    def has_gradient(self) -> bool:
        """Whether a step computes a gradient of it."""
        return self.is_pushed and not self.is_buffer


def parameter_server(run: Run, backend: str) -> Ledger:
    """Predicts servers that take the parts of all variables in turn; tables are cut by rows.

    Args:
        run: What is trained.
        backend: "grpc".

    Returns:
        The footprints of the chief, the workers and the servers; and what all workers pull and push in a step.
    """
    workers, servers = run.num_devices, run.options.parameter_servers
    updates = 1 if run.asked.is_serial else workers
    params = run.workload.model.params()
    parts = _parts(run)
    read = run.passes * sum(part.size * part.reads for part in parts if not part.is_sparse) * run.item_bytes
    pulled, pushed = map(round, _moved(run, parts))
    footprints = (
        Footprint.uniform("chief", 0, 0),
        borrower("worker", read, pushed, count=workers),
        *(_server(run, parts[server::servers]) for server in range(servers)),
    )
    sends = tuple(
        Send(phase, operation, "data", workers, updates * size, updates * len(each))
        for phase, operation, size, each in (
            ("forward", "pull", pulled, params),
            ("backward", "push", pushed, [each for each in params.values() if each.has_gradient]),
        )
    )
    return Ledger(footprints, sends, sum(server_routes(run).values()))


def server_routes(run: Run) -> Mapping[tuple[int, int], float]:
    """Predicts what chief, workers and servers send each other in a step: (process, process) -> bytes.

    Every worker is assumed to take an equal share of the updates; in fact the chief hands each to a worker that is free.

    Args:
        run: What is trained.
    """
    workers, servers = range(1, 1 + run.num_devices), range(run.options.parameter_servers)
    updates = 1 if run.asked.is_serial else run.num_devices
    parts, slots = _parts(run), len(run.optimizer.slots)
    share, first = updates / run.num_devices, 1 + run.num_devices
    examples = run.batch_size * _sent_example_bytes(run, run.item_bytes) / run.num_devices
    handed = _TO_WORKER.once + _TO_WORKER.size(len(servers), parts, slots)
    found: dict[tuple[int, int], float] = {}
    for server in servers:
        own = parts[server :: len(servers)]
        pulled, pushed = _moved(run, own)
        asked = sum(part.lookups * (1 + _asks_again(run, part)) for part in own)
        asked *= run.batch_size // updates * ID_BYTES
        again = sum(run.passes * max(1, part.reads) - 1 for part in own) * _AGAIN_BYTES
        to, back = (each.once / len(servers) + each.size(1, own, slots) + again for each in (_TO_SERVER, _FROM_SERVER))
        loops = run.passes * run.workload.model.facts.loops
        if loops and (turned := run.passes * sum(part.reads for part in own if part.reads > 1) * _TURNED_BYTES):
            to += len(loops) * _LOOP_BYTES[0] + sum(loops) * _TURN_BYTES[0] + turned
            back += len(loops) * _LOOP_BYTES[1] + sum(loops) * _TURN_BYTES[1] + turned
        for worker in workers:
            found[0, worker] = share * handed + examples
            found[worker, 0] = share * _TO_CHIEF_BYTES
            found[worker, first + server] = share * (pushed + asked + to)
            found[first + server, worker] = share * (pulled + back)
        changed = sum(part.is_pushed for part in own)
        if server:
            found[first, first + server] = found[first + server, first] = updates * changed * _BETWEEN_BYTES
    return found


def _asks_again(run: Run, part: _Part) -> bool:
    """Returns whether ids are sent again with the gradient of rows: they are if the gradient has a flat copy of them.

    A vector of ids is not copied, except by Keras' layers, of which a user's model is made. The servers of a table that
    is cut have kept the ids.
    """
    is_copied = part.lookups > 1 or not run.workload.model.facts.is_built_here
    return part.is_sparse and part.is_trained and is_copied and run.options.parameter_servers == 1


def _moved(run: Run, parts: Iterable[_Part]) -> tuple[float, float]:
    """Returns the bytes of numbers that an update pulls and pushes for some parts."""
    updates = 1 if run.asked.is_serial else run.num_devices
    pulled = pushed = 0.0
    for part in parts:
        rows = part.lookups * part.row * (run.batch_size // updates)
        pulled += rows + (0 if part.is_sparse else part.size * part.reads * run.passes)
        pushed += (rows if part.is_sparse else part.size) * part.is_pushed * (run.passes if part.is_buffer else 1)
    return pulled * run.item_bytes, pushed * run.item_bytes


def _sent_example_bytes(run: Run, item: int) -> int:
    """Returns the bytes of an example on its way to a worker, including the weights of its targets."""
    model = run.workload.model
    weights = math.prod(model.targets().shape) * item if ignores_targets(model) else 0
    weights += item if model.facts.reduction == OWN else 0  # its share of the batch, sent with each example
    return example_bytes(model.inputs(), item) + example_bytes(model.targets(), item) + weights


def _server(run: Run, parts: Sequence[_Part]) -> Footprint:
    """Returns the footprint of a server that holds some parts."""
    parts = [part for part in parts if not part.is_buffer]
    learning = sum(part.size for part in parts if part.is_trained)
    held = holder(run, sum(part.size for part in parts), "ps", trained=learning)
    gradients = sum(part.size for part in parts if part.is_pushed) * run.item_bytes
    return dataclasses.replace(held, gradients_bytes=gradients)


def _parts(run: Run) -> list[_Part]:
    """Returns the parts of all variables, in order: a layer creates its buffers after its parameters."""
    params, buffers = run.workload.model.params(), _buffers(run)
    names = [*params, *buffers]
    layers = {path: place for place, path in enumerate(dict.fromkeys(map(layer, names)))}
    parts = []
    for name in sorted(names, key=lambda name: layers[layer(name)]):
        if name in buffers:
            parts.append(buffers[name])
            continue
        param = params[name]
        shards = min(run.options.parameter_servers, param.shape[0]) if param.lookups else 1
        row = param.size // param.shape[0]
        for shard in range(shards):
            size = (param.shape[0] // shards + (shard < param.shape[0] % shards)) * row
            looked_up = param.lookups * size / param.size
            parts.append(
                _Part(size, not param.frozen, param.has_gradient, param.reads, looked_up, row, param.read_by_rows)
            )
    return parts


def _buffers(run: Run) -> dict[str, _Part]:
    """Returns the buffers of a user's model that hold real numbers; a pass reads each, and assigns the running ones."""
    facts = run.workload.model.facts
    moving = {path for layers in facts.featured.values() for path in layers}
    return {
        name: _Part(
            size := math.prod(shape),
            is_trained=False,
            is_pushed=not keeps_buffers(run) and (layer(name) in moving or name in facts.habits.running),
            reads=1,
            lookups=0,
            row=size,
            is_sparse=False,
            is_buffer=True,
        )
        for name, shape in facts.buffers.items()
        if name not in facts.whole_buffers
    }

"""Servers hold parameters: every step each worker pulls what it needs of them, and pushes its gradients back.

rpc_parameter_server, one server: with S bytes on it and N workers a step sends 2NS, half of it by the server: its link is
the bottleneck. Of a table from which each example looks up one row, only those rows are moved.

parameter_server, TensorFlow's servers, which hold everything: with P the bytes of the parameters that are read whole and R
those of the rows that a batch looks up in tables, an update pulls P + R and pushes P + R; it runs on the servers, so no
optimizer state travels. With K accumulation steps it pulls KP + R, since each micro-batch reads the parameters anew. What a
regularizer adds to the loss is read once more. Of a tied table, rows are pulled beside all of it, and its gradient is whole.
Serial, a step is one update on the global batch; asynchronous, it is one on each worker's shard. The chief sends each batch to
the worker that takes it.

References:
    Li et al., OSDI 2014, "Scaling distributed machine learning with the parameter server"; Dean et al., NeurIPS 2012
    (DistBelief, asynchronous).
"""

import dataclasses
import math
from collections.abc import Sequence

from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.sizes import ID_BYTES, borrower, example_bytes, holder, holder_of, sent_bytes
from samestep.common.ledger import Footprint, Ledger, Send
from samestep.common.strategy import Run
from samestep.common.workload.models.reached import num_trained, trained
from samestep.common.workload.models.spec import Param, ignores_targets, parameters_of
from samestep.common.workload.pipeline_schedule import server_segments

_CALLS_BYTES, _TENSOR_BYTES = 1500, 95
"""About what torch 2.13 sends in a step for each worker besides numbers: two calls with their replies; each tensor."""

_SERVER_BYTES, _PART_BYTES, _SLOT_BYTES, _TABLE_BYTES, _READ_BYTES, _AGAIN_BYTES = 3000, 1300, 180, 350, 700, 300
"""About what tensorflow 2.21 sends in an update besides numbers: for each server; for each part of a variable, which is
asked for, answered, named in the call, locked and updated; for each slot of a part; for each part of a table; for each part
of a frozen variable, which is only read; for each part that a further micro-batch reads anew."""


def rpc_parameter_server(run: Run, backend: str) -> Ledger:
    """Predicts the workers and, last, their server.

    Args:
        run: What is trained.
        backend: "tensorpipe", with gloo among the workers.

    Returns:
        The footprints of the workers and of the server, and what the workers exchange among each other.
    """
    workers, model = run.num_devices, run.workload.model
    served, kept = (list(parameters_of(model, *segments).values()) for segments in server_segments(model))
    server = holder_of(run, served, "server")
    if not kept:
        worker = dataclasses.replace(
            server, device="worker", optimizer_bytes=0, activations_bytes=activation_bytes(run), count=workers
        )
        calls = _CALLS_BYTES + 2 * len(served) * _TENSOR_BYTES
        pulled, pushed = server.params_bytes, num_trained(served) * run.item_bytes
        return Ledger((worker, server), _moved(workers, pulled, pushed), workers * (pulled + pushed + calls))

    examples = run.batch_size // workers
    rows = examples * sum(param.shape[1] for param in served) * run.item_bytes
    ids = examples * len(served) * ID_BYTES
    worker = holder(run, sum(param.size for param in kept), "worker", workers)
    activations = activation_bytes(run, (server_segments(model)[1],))
    worker = dataclasses.replace(worker, params_peak_bytes=worker.params_bytes + rows, activations_bytes=activations)
    sent: float = workers * (2 * rows + 2 * ids + _CALLS_BYTES + 4 * len(served) * _TENSOR_BYTES)
    reduced = Send("backward", "all_reduce", "data", workers, worker.params_bytes)
    sent += workers * sent_bytes(reduced, "gloo", run.item_bytes)
    return Ledger((worker, server), _moved(workers, rows, rows, reduced), math.ceil(sent))


def _moved(workers: int, pulled: int, pushed: int, *between: Send) -> tuple[Send, ...]:
    """Predicts what a worker moves, each way in one call; the server has the rank after the last worker's."""
    pull, push = (
        Send(phase, operation, "data", workers, size, to=str(workers))
        for phase, operation, size in (("forward", "pull", pulled), ("backward", "push", pushed))
    )
    return pull, *between, push


def parameter_server(run: Run, backend: str) -> Ledger:
    """Tables are cut by rows over the servers; all parts, in order, go to the servers in turn.

    Args:
        run: What is trained.
        backend: "grpc".

    Returns:
        The footprints of the chief, the workers and the servers; and what all workers pull and push in a step.
    """
    workers, servers = run.num_devices, run.options.parameter_servers
    updates = 1 if run.options.consistency == "serial" else workers
    model, item, batch = run.workload.model, run.item_bytes, run.batch_size
    params, learning = model.params().values(), trained(model.params()).values()
    tables = [param for param in params if param.lookups]
    parts = _parts(run)
    dense_read = sum(param.size * param.reads for param in params if not param.read_by_rows) * item
    dense_trained = sum(param.size for param in learning if not param.read_by_rows) * item
    rows, pushed_rows = (
        sum(param.lookups * param.shape[1] for param in each) * item * batch // updates
        for each in (tables, [param for param in tables if param.read_by_rows])
    )
    read = run.passes * dense_read
    pulled, pushed = read + rows, dense_trained + pushed_rows
    footprints = (
        Footprint.uniform("chief", 0, 0),
        borrower("worker", read, pushed, count=workers),
        *(_server(run, parts[server::servers]) for server in range(servers)),
    )
    sends = tuple(
        Send(phase, operation, "data", workers, updates * size, updates * len(each))
        for phase, operation, size, each in (
            ("forward", "pull", pulled, params),
            ("backward", "push", pushed, learning),
        )
    )
    ids = sum(param.lookups for param in tables) * batch * ID_BYTES
    examples = batch * _sent_example_bytes(run, item)
    calls = _call_bytes(run, parts, tables)
    return Ledger(footprints, sends, updates * (pulled + pushed + calls) + ids + examples)


def _sent_example_bytes(run: Run, item: int) -> int:
    """Returns the bytes of an example on its way to a worker, with what weighs its targets."""
    model = run.workload.model
    weights = math.prod(model.targets().shape) * item if ignores_targets(model) else 0
    weights += item if _divides_by_own(run) else 0  # its share of the batch, beside each example
    return example_bytes(model.inputs(), item) + example_bytes(model.targets(), item) + weights


def _call_bytes(run: Run, parts: Sequence[tuple[int, bool]], tables: Sequence[Param]) -> int:
    """Returns what the calls of an update take beside the numbers that they carry."""
    servers, num_trained = run.options.parameter_servers, sum(is_trained for _, is_trained in parts)
    calls = servers * _SERVER_BYTES + num_trained * (_PART_BYTES + len(run.optimizer.slots) * _SLOT_BYTES)
    calls += (len(parts) - num_trained) * _READ_BYTES + (run.passes - 1) * len(parts) * _AGAIN_BYTES
    return calls + sum(min(servers, param.shape[0]) for param in tables) * _TABLE_BYTES


def _server(run: Run, parts: Sequence[tuple[int, bool]]) -> Footprint:
    """Returns a server with some parts."""
    learning = sum(size for size, is_trained in parts if is_trained)
    return holder(run, sum(size for size, _ in parts), "ps", trained=learning)


def _parts(run: Run) -> list[tuple[int, bool]]:
    """Returns the elements of each part of a variable, in order, and whether it is trained."""
    parts = []
    for param in run.workload.model.params().values():
        shards = min(run.options.parameter_servers, param.shape[0]) if param.lookups else 1
        for shard in range(shards):
            rows = param.shape[0] // shards + (shard < param.shape[0] % shards)
            parts.append((rows * (param.size // param.shape[0]), not param.frozen))
    return parts


def _divides_by_own(run: Run) -> bool:
    from samestep.common.workload.reductions import OWN  # here: it imports what a user's file declares

    return run.workload.model.facts.reduction == OWN

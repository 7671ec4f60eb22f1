"""Processes of torch that call each other: the stages of a model, and workers with a parameter server.

rpc: what `mp` costs, plus the calls; the targets go to the last worker, and the loss to the driver.

rpc_parameter_server: with S bytes on the server and N workers a step sends 2NS, half of it by the server: its link is the
bottleneck. Of a table from which each example looks up one row, only those rows are moved.

References:
    Li et al., OSDI 2014, "Scaling distributed machine learning with the parameter server".
"""

import collections
import dataclasses
from collections.abc import Mapping

from samestep.common.costs.pipeline import mp, mp_sends
from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.sizes import ID_BYTES, example_bytes, holder_of, sent_bytes
from samestep.common.ledger import Ledger, Send, in_order
from samestep.common.strategy import Run
from samestep.common.workload.models.parameters import num_trained
from samestep.common.workload.models.spec import parameters_of
from samestep.common.workload.pipeline_schedule import server_segments

_CALL_BYTES, _ANSWER_BYTES, _TENSOR_BYTES = 680, 470, 95
"""The approximate bytes, besides numbers, that torch 2.13 sends in a step: a worker to its server, in two calls; the server,
in its replies; and in each direction for each tensor.
"""
_SHARED_BYTES, _BUFFER_BYTES = 8192, 53
"""If the ids of all tables have fewer bytes than the first number, they are sent in one buffer, of which the ids of each
table are a view. A tensor without its own buffer takes fewer bytes, by the second number.
"""
_TO_ITSELF, _TO_ITSELF_ALONE, _TO_STAGE, _TO_LAST = (840, 620), (840, 1630), (750, 700), (800, 1140)
_FROM_STAGE, _FROM_LAST = (320, 520), (500, 800)
_ON, _ON_FROM_DRIVER, _BACK, _BACK_TO_DRIVER = (520, 780), (70, 740), (280, 840), (110, 540)
"""The same between stages, in a step and in each of its passes, counted by connection (`ss -ti`): the driver's calls to
itself with their answers, with other workers and alone; its calls to a stage, and to the last one; their answers; and
what is sent with activations to the next stage and with gradients back. A stage after the second one also notifies the
one before it that it refers to its activations.
"""


def rpc(run: Run, backend: str, place: int = 0) -> Ledger:
    """Predicts what `mp` costs, plus the calls themselves.

    Args:
        run: What is trained.
        backend: "tensorpipe".
        place: The place along `pipe`; the driver is the first.

    Returns:
        One footprint per worker, and the sends of the worker at the place.
    """
    ledger, others, passes = mp(run, "memory", place), run.num_devices - 1, run.passes
    # Autograd saves them on the threads of calls, where nothing counts them.
    footprints = tuple(dataclasses.replace(each, activations_bytes=None) for each in ledger.footprints)
    sent = sum(rpc_routes(run).values())
    ledger = dataclasses.replace(ledger, footprints=footprints, sent_bytes_per_step=sent)
    if place or not others:
        return ledger
    last = str(others)
    (activations,) = (dataclasses.replace(send, count=1, bytes=send.bytes // passes) for send in ledger.sends)
    once = [Send("forward", "send", "pipe", others + 1, _targets_bytes(run) // passes, to=last), activations]
    losses = Send("backward", "send", "pipe", others + 1, passes * run.item_bytes, passes, to=last)
    return dataclasses.replace(ledger, sends=in_order([*once * passes, losses]))


def _targets_bytes(run: Run) -> int:
    return run.batch_size * example_bytes(run.workload.model.targets(), run.item_bytes)


def rpc_routes(run: Run) -> Mapping[tuple[int, int], float]:
    """Predicts what the workers, of which the first drives all, send each other in a step: (process, process) -> bytes.

    The driver calls itself over a connection as well.

    Args:
        run: What is trained.
    """
    found: collections.Counter[tuple[int, int]] = collections.Counter()
    last, loss = run.num_devices - 1, run.passes * run.item_bytes
    for worker, sends in enumerate(mp_sends(run)):
        for send in sends:
            found[worker, int(send.to)] += send.bytes
        to, back = (_TO_LAST, _FROM_LAST) if worker == last else (_TO_STAGE, _FROM_STAGE)
        found[0, worker] += _calls(run, to if worker else _TO_ITSELF if last else _TO_ITSELF_ALONE)
        if worker:
            found[worker, 0] += _calls(run, back)
            found[worker - 1, worker] += _calls(run, _ON_FROM_DRIVER if worker == 1 else _ON)
            found[worker, worker - 1] += _calls(run, _BACK_TO_DRIVER if worker == 1 else _BACK)
    found[0, last] += _targets_bytes(run) + loss  # the gradient of the loss
    found[last, 0] += loss
    return found


def _calls(run: Run, size: tuple[int, int]) -> int:
    once, each_pass = size
    return once + run.passes * each_pass


def rpc_parameter_server(run: Run, backend: str) -> Ledger:
    """Predicts what the workers and, last, their server hold and exchange.

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
        pulled, pushed = server.params_bytes, num_trained(served) * run.item_bytes
        return Ledger((worker, server), _moved(workers, pulled, pushed), sum(rpc_server_routes(run).values()))

    examples = run.batch_size // workers
    rows = examples * sum(param.shape[1] for param in served) * run.item_bytes
    worker = holder_of(run, kept, "worker", workers)
    activations = activation_bytes(run, (server_segments(model)[1],))
    worker = dataclasses.replace(worker, params_peak_bytes=worker.params_bytes + rows, activations_bytes=activations)
    reduced = Send("backward", "all_reduce", "data", workers, worker.params_bytes)
    return Ledger((worker, server), _moved(workers, rows, rows, reduced), sum(rpc_server_routes(run).values()))


def rpc_server_routes(run: Run) -> Mapping[tuple[int, int], float]:
    """Predicts what the workers and, last, their server send each other in a step: (process, process) -> bytes.

    Args:
        run: What is trained.
    """
    workers, model, item = run.num_devices, run.workload.model, run.item_bytes
    served, kept = (list(parameters_of(model, *segments).values()) for segments in server_segments(model))
    pulled, pushed, tensors = sum(param.size for param in served) * item, num_trained(served) * item, len(served)
    found: dict[tuple[int, int], float] = {}
    if kept:  # of tables: ids there and rows back, ids there again with the rows of gradients
        examples = run.batch_size // workers
        pulled = examples * sum(param.shape[1] for param in served) * item
        ids = examples * tensors * ID_BYTES
        views = tensors - 1 if ids < _SHARED_BYTES else 0
        pushed, tensors = pulled + 2 * (ids - views * _BUFFER_BYTES), 3 * tensors
        reduced = Send("backward", "all_reduce", "data", workers, sum(param.size for param in kept) * item)
        around = sent_bytes(reduced, "gloo", item) if workers > 1 else 0.0
        found = {(worker, (worker + 1) % workers): around for worker in range(workers) if around}
    for worker in range(workers):
        found[worker, workers] = pushed + _CALL_BYTES + tensors * _TENSOR_BYTES
        found[workers, worker] = pulled + _ANSWER_BYTES + len(served) * _TENSOR_BYTES
    return found


def _moved(workers: int, pulled: int, pushed: int, *between: Send) -> tuple[Send, ...]:
    """Predicts what a worker moves, each way in one call; the server has the rank after the last worker's."""
    pull, push = (
        Send(phase, operation, "data", workers, size, to=str(workers))
        for phase, operation, size in (("forward", "pull", pulled), ("backward", "push", pushed))
    )
    return pull, *between, push

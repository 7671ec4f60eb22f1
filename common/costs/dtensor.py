"""TensorFlow's models split inside their layers: DTensor on a mesh data x tensor, and the cores of a TPU.

dtensor: a mesh data x tensor, with the batch split along data. With D x T devices and B/D examples for each, one device
exchanges the following, all of it by all-reduce if the devices are CPUs:

    along tensor   for each pair of a layer split by column and one split by row, its output forward and its input's gradient
                   backward, B/D x positions x width each; the split tables and the split logits are made whole
    along data     all gradients in one, those of split tables whole; and the targets, by which the loss looks up its logits;
                   or, where some targets do not count, the gradient of what it looked up, as large as the logits of the
                   whole batch

DTensor packs several tensors into one all-reduce of a multiple of 1024 elements, also those of micro-batches, none of which
waits for another.

tpu: XLA alone decides what is sent along the axis tensor, so no exchange is predicted.
"""

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping

from samestep.common.axes.used import held_params
from samestep.common.costs.data_parallel import replicated
from samestep.common.costs.sizes import ID_BYTES, holder, sent_bytes
from samestep.common.ledger import Ledger, Send, in_order
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ignores_targets, num_positions
from samestep.common.workload.split import even_split_table

_PACKED = 1024
_ASKED_BYTES, _TOLD_BYTES = 204, 40
"""The bytes of a device's request to the first process for the key of each sum, and of the reply (tensorflow 2.21)."""


def dtensor(run: Run, backend: str) -> Ledger:
    """Predicts what a step costs on a mesh data x tensor.

    Args:
        run: What is trained; its option `clients` is the number of processes.
        backend: "grpc", which carries only what leaves a process.

    Returns:
        The footprint of all devices, and the all-reduces that a device takes part in.
    """
    mesh, model = run.mesh, run.workload.model
    split = even_split_table(model, mesh.tensor) if mesh.tensor > 1 else {}
    footprint = holder(run, _elements(run), count=mesh.size)
    gathered = _packed([model.params()[name].size for name in split if model.params()[name].lookups]) * run.item_bytes
    footprint = dataclasses.replace(footprint, params_peak_bytes=footprint.params_bytes + gathered)
    sends, sent, clients = [], 0.0, run.options.clients
    for axis, phase, size in _sums(run, split):
        sends.append(Send(phase, "all_reduce", mesh.only_axis, mesh.axis(axis), size))
        sent += _leaving(mesh, axis, clients) * sent_bytes(sends[-1], "grpc", run.item_bytes)
        sent += (clients - 1) * (mesh.size // clients) * (_ASKED_BYTES + _TOLD_BYTES)
    return Ledger((footprint,), in_order(sends), sent)


def dtensor_routes(run: Run) -> Mapping[tuple[int, int], float]:
    """Predicts what the processes send each other in a step: (process, process) -> bytes.

    Every sum goes around rings along its axis. The devices of every process but the first ask the first one for its key.

    Args:
        run: What is trained.
    """
    mesh, clients, found = run.mesh, run.options.clients, collections.Counter[tuple[int, int]]()
    if clients == 1:
        return found
    split = even_split_table(run.workload.model, mesh.tensor) if mesh.tensor > 1 else {}
    for axis, phase, size in _sums(run, split):
        sent = sent_bytes(Send(phase, "all_reduce", axis, mesh.axis(axis), size), "grpc", run.item_bytes)
        for device in range(mesh.size):
            ring = mesh.members(axis, mesh.axis(axis), device)
            ends = device, ring[(ring.index(device) + 1) % len(ring)]
            source, to = (each * clients // mesh.size for each in ends)
            found[source, to] += sent * (source != to)  # pyrefly: ignore
        for client in range(1, clients):
            found[client, 0] += _ASKED_BYTES * (mesh.size // clients)
            found[0, client] += _TOLD_BYTES * (mesh.size // clients)
    return +found


def _sums(run: Run, split: Mapping[str, int]) -> Iterator[tuple[str, str, int]]:
    """Yields each all-reduce in order: the axis along which it goes, its phase, and its bytes."""
    mesh = run.mesh
    forward, backward = _along_tensor(run, split) if mesh.tensor > 1 else ([], [])
    gradients, targets = _along_data(run, split) if mesh.data > 1 else ([], [])
    yield from (("data", "backward", size) for size in targets)  # targets wait for nothing
    yield from (("tensor", "forward", size) for size in forward)
    yield from (("tensor", "backward", size) for size in backward)
    yield from (("data", "backward", size) for size in gradients)  # DTensor packs what it sums for the update last


def _packed(sizes: list[int]) -> int:
    return math.ceil(sum(sizes) / _PACKED) * _PACKED if len(sizes) > 1 else sum(sizes)


def _along_tensor(run: Run, split: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Predicts the bytes of each all-reduce along tensor, forward and backward."""
    params = run.workload.model.params()
    passes = run.passes
    rows = run.batch_size // run.mesh.data // passes * num_positions(run.workload.model)
    tables = [params[name].size for name in split if params[name].lookups]
    forward, backward = [_packed(tables)] if tables else [], []
    inside = ""
    for index, (name, param) in enumerate(params.items()):
        if param.role != "kernel" or name not in split:
            continue
        if split[name] == 0:
            forward.append(_packed([rows * param.shape[1]] * passes))
            inside = ""
        elif not inside:
            inside = name
            if index:  # the first layer's input is data, and has no gradient
                backward.append(_packed([rows * param.shape[0]] * passes))
    for param in (params[name] for name in split if params[name].tied):  # the head's kernel as well, split by column
        forward.append(_packed([rows * param.shape[0]] * passes))
        backward.append(_packed([rows * param.shape[1]] * passes))
    if inside:  # the last layer is split by column
        forward.append(_packed([rows * params[inside].shape[1]] * passes))
    return [size * run.item_bytes for size in forward], [size * run.item_bytes for size in reversed(backward)]


def _along_data(run: Run, split: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Predicts the bytes of each all-reduce along data, of gradients and of targets."""
    model, parts = run.workload.model, run.mesh.tensor
    passes, gradients, of_products = run.passes, [], []
    # A sum of two bytes is widened and sent in four, but packed apart from others; that of several passes is in four anyway.
    is_narrow = run.product_bytes < run.item_bytes and passes == 1
    for name, param in model.params().items():
        if is_narrow and param.role == "kernel":
            of_products.append(param.size // (parts if name in split else 1))
            continue
        is_split_table = name in split and param.lookups > 0  # summed whole, for each micro-batch
        gradients += [param.size // (parts if name in split and not is_split_table else 1)]
        gradients += [param.size] * (passes - 1) * is_split_table
        gradients += [param.size // parts] * passes * (param.tied and is_split_table)  # the head's half
    looked_up = run.batch_size * math.prod(model.targets().shape) // passes
    targets = [_packed([looked_up] * passes) * ID_BYTES] if model.loss == "cross_entropy" else []
    if ignores_targets(model):  # the gradient of a weighted lookup, in place of the targets
        logits = run.batch_size // passes * math.prod(model.segments()[-1].outputs)
        targets = [logits * run.item_bytes] * passes
    packs = [_packed(pack) for pack in (of_products, [*gradients, 1]) if pack]  # and the loss
    return [pack * run.item_bytes for pack in packs], targets


def _leaving(mesh: Mesh, axis: str, clients: int) -> int:
    """Returns how many edges of all rings join devices of two processes; only over these does anything leave a process.

    Args:
        mesh: The devices.
        axis: The axis along which the rings lie.
        clients: The number of processes.
    """
    ring, stride = mesh.axis(axis), 1 if axis == "tensor" else mesh.tensor
    per_client = mesh.size // clients
    period = math.lcm(ring * stride, per_client)  # after this many devices, rings and processes start together again
    crossing = 0
    for device in range(period if per_client % (ring * stride) else 0):
        place = device // stride % ring
        neighbour = device + ((place + 1) % ring - place) * stride
        crossing += device // per_client != neighbour // per_client
    return mesh.size // period * crossing


def _elements(run: Run) -> int:
    """Returns the number of elements of the parameters that a device holds."""
    return sum(param.size for param in held_params(run).values())


def tpu(run: Run, backend: str) -> Ledger:
    """Predicts cores that hold the model, or along tensor a shard of each parameter that the split table cuts.

    Args:
        run: What is trained or compiled.
        backend: The backend, as for `replicated`.

    Returns:
        The footprint of all cores; exchanges only without the axis tensor.
    """
    parts = run.mesh.tensor
    footprints = (holder(run, _elements(run), count=run.num_devices),)
    if parts > 1:
        return Ledger(footprints, (), 0.0)
    return dataclasses.replace(replicated(run, backend), footprints=footprints)  # XLA decides what it keeps

"""Models split inside their layers, along the axis `tensor` of a mesh.

tp: every rank computes its part of each pair of layers on the full batch. With A bytes of activations in a pair's outputs,
and as many in its inputs, a step all-reduces A forward and A backward for each pair: for a transformer's block twice each.
A softmax over logits in parts all-reduces three numbers a target.

dtensor: a mesh data x tensor, with the batch along data. With D x T devices, B/D a device's examples and item the bytes of
a number, one device's exchanges, all of them all-reduces where the devices are CPUs:

    along tensor   each pair of a layer split by column and one split by row: its output forwards, its input's gradient
                   backwards, B/D x positions x width each; the split tables and the split logits are made whole
    along data     all gradients in one, the split tables' whole; and the targets, by which the loss looks up

DTensor packs several tensors into one all-reduce of a multiple of 1024 elements, also those of micro-batches, none of which
waits for another.

tpu: XLA alone decides what moves along the axis tensor, so no exchange is predicted.

References:
    Shoeybi et al., arXiv 1909.08053, section 3 (two all-reduces a pair of layers, each way); Korthikanti et al., arXiv
    2205.05198, section 4.2.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from samestep.common.evidence.costs.activations import activation_bytes
from samestep.common.evidence.costs.data_parallel import replicated
from samestep.common.evidence.costs.sizes import ID_BYTES, all_reduce_bytes, holder, symmetric
from samestep.common.ledger import Footprint, Ledger, Send, in_order
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Segment, layer, num_positions, parameters_of
from samestep.common.workload.split import even_split_table

_PACKED = 1024


def tp(run: Run, backend: str) -> Ledger:
    """Every rank has its shard of each split layer, and all of the rest.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprint of all ranks, and the collectives of both passes.
    """
    return symmetric(run, tp_footprints(run), _tp_collectives(run) if run.mesh.axis("tensor") > 1 else (), backend)


def tp_footprints(run: Run) -> tuple[Footprint, ...]:
    """Predicts the memory of ranks that hold a part of each split layer, and all of the rest."""
    parts = run.mesh.axis("tensor")
    held = holder(run, _tensor_elements(run.workload.model, parts), count=parts)
    activations = activation_bytes(run, splits_sequence=run.options.sequence_parallel)
    return (dataclasses.replace(held, activations_bytes=activations),)


def _tp_collectives(run: Run) -> Iterator[Send]:
    """Predicts every collective of a rank."""
    model, parts, passes = run.workload.model, run.mesh.axis("tensor"), run.accumulation_steps
    rows = run.batch_size // passes
    once = _in_shards(run, rows) if run.options.sequence_parallel else sums(run, rows, model.segments())
    for _ in range(passes):
        yield from itertools.chain(*once)
    if run.techniques.need_norm:  # the norm of each parameter that is split
        for _ in even_split_table(model, parts):
            yield Send("update", "all_reduce", "tensor", parts, run.item_bytes)


def sums(run: Run, rows: int, segments: Sequence[Segment]) -> tuple[list[Send], list[Send]]:
    """Predicts what some examples have summed along the axis `tensor`, forward and backward, in order.

    Forward: the rows looked up in each split table, the outputs of each layer split by row, and the three numbers of a
    softmax over split logits. Backward: the gradients of the inputs of each layer split by column.

    Args:
        run: What is trained.
        rows: The number of examples.
        segments: The part of the model that is meant.
    """
    parts, row_bytes = run.mesh.axis("tensor"), rows * run.item_bytes
    layers = _split_layers(run.workload.model, parts, segments)
    outputs = [size for kind, size in layers if kind in ("table", "row", "logits")]
    inputs = [size for kind, size in reversed(layers) if kind == "column"]
    forward = [Send("forward", "all_reduce", "tensor", parts, size * row_bytes) for size in outputs]
    return forward, [Send("backward", "all_reduce", "tensor", parts, size * row_bytes) for size in inputs]


def _in_shards(run: Run, rows: int) -> tuple[list[Send], list[Send]]:
    """Predicts what `sums` does where activations between two pairs are in shards: gathered before, scattered after.

    Each rank computes the gradients of norms on its shard, so they are summed; that of the embedding's output, which each
    rank cut, is gathered.
    """
    parts = run.mesh.axis("tensor")
    ahead = {"table": "all_reduce", "column": "all_gather", "row": "reduce_scatter", "logits": "all_reduce"}
    back = {"table": "all_gather", "column": "reduce_scatter", "row": "all_gather", "norm": "all_reduce"}
    layers = _split_layers(run.workload.model, parts, run.workload.model.segments())

    def collective(phase: str, operation: str, kind: str, size: int) -> Send:
        whole = size * run.item_bytes * (1 if kind == "norm" else rows)
        return Send(phase, operation, "tensor", parts, whole // (parts if operation == "all_gather" else 1))

    return (
        [collective("forward", ahead[kind], kind, size) for kind, size in layers if kind in ahead],
        [collective("backward", back[kind], kind, size) for kind, size in reversed(layers) if kind in back],
    )


def _split_layers(model: ModelSpec, parts: int, segments: Sequence[Segment]) -> list[tuple[str, int]]:
    """Lists what a step meets in some segments, in order: what it is, and the elements of its sum for one example.

    A "table" and a layer split by "row" have their outputs summed, one split by "column" the gradient of its inputs; split
    "logits" take a softmax of three sums; a "norm" is whole, and the elements of its parameter do not depend on examples.
    """
    params, split = model.params(), even_split_table(model, parts)
    meant, last = parameters_of(model, *segments), parameters_of(model, model.segments()[-1])
    first = "" if model.inputs().ids else next(iter(params))  # it reads data, whose gradient nobody needs
    norms = {layer(name) for name, param in meant.items() if param.role == "scale"}
    positions, found = num_positions(model), []
    kernels = {name for name, param in meant.items() if name in split and param.role != "bias"}
    logits = next((name for name in reversed(split) if params[name].role != "bias"), "")
    for name, param in meant.items():
        if layer(name) in norms:
            found.append(("norm", param.size))
        elif name in kernels and param.lookups:
            found.append(("table", param.lookups * param.shape[1]))
        elif name in kernels and split[name] == 0:
            found.append(("row", positions * param.shape[1]))
        elif name in kernels and name != first and not param.shares_input:
            found.append(("column", positions * param.shape[0]))
    has_split_logits = split.get(logits) == 1 and logits in meant and logits in last
    return found + [("logits", positions)] * (3 if has_split_logits else 0)


def dtensor(run: Run, backend: str) -> Ledger:
    """Predicts what a step costs on a mesh data x tensor.

    Args:
        run: What is trained; its option `clients` is the number of processes.
        backend: "grpc", which only what leaves a process takes.

    Returns:
        The footprint of all devices, and the all-reduces that a device takes part in.
    """
    mesh, model = run.mesh, run.workload.model
    split = even_split_table(model, mesh.axis("tensor")) if mesh.axis("tensor") > 1 else {}
    footprint = holder(run, _tensor_elements(model, mesh.axis("tensor")), count=mesh.size)
    gathered = _packed([model.params()[name].size for name in split if model.params()[name].lookups]) * run.item_bytes
    footprint = dataclasses.replace(footprint, params_peak_bytes=footprint.params_bytes + gathered)
    forward, backward = _along_tensor(run, split) if mesh.axis("tensor") > 1 else ([], [])
    gradients, targets = _along_data(run, split) if mesh.axis("data") > 1 else ([], [])
    # DTensor packs what it sums for the update last; the targets wait for nothing.
    told = [("data", "backward", targets), ("tensor", "forward", forward), ("tensor", "backward", backward)]
    told.append(("data", "backward", gradients))
    sends = [
        Send(phase, "all_reduce", mesh.only_axis, mesh.axis(axis), size)
        for axis, phase, sizes in told
        for size in sizes
    ]
    sent = sum(_leaving(mesh, axis, sum(sizes), run.options.clients) for axis, _, sizes in told)
    return Ledger((footprint,), in_order(sends), sent)


def _packed(sizes: list[int]) -> int:
    return math.ceil(sum(sizes) / _PACKED) * _PACKED if len(sizes) > 1 else sum(sizes)


def _along_tensor(run: Run, split: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Predicts the bytes of each all-reduce along tensor, forward and backward."""
    params = run.workload.model.params()
    passes = run.accumulation_steps
    rows = run.batch_size // run.mesh.axis("data") // passes * num_positions(run.workload.model)
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
            if index:  # what the first layer takes is data, and has no gradient
                backward.append(_packed([rows * param.shape[0]] * passes))
    if inside:  # the last layer is split by column
        forward.append(_packed([rows * params[inside].shape[1]] * passes))
    return [size * run.item_bytes for size in forward], [size * run.item_bytes for size in reversed(backward)]


def _along_data(run: Run, split: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Predicts the bytes of each all-reduce along data, of gradients and of targets."""
    model, parts = run.workload.model, run.mesh.axis("tensor")
    passes, gradients = run.accumulation_steps, []
    for name, param in model.params().items():
        is_split_table = name in split and param.lookups > 0  # summed whole, for each micro-batch
        gradients += [param.size // (parts if name in split and not is_split_table else 1)]
        gradients += [param.size] * (passes - 1) * is_split_table
    looked_up = run.batch_size * math.prod(model.targets().shape) // passes
    targets = [_packed([looked_up] * passes) * ID_BYTES] if model.loss == "cross_entropy" else []
    return [_packed([*gradients, 1]) * run.item_bytes], targets  # and the loss


def _leaving(mesh: Mesh, axis: str, size: int, clients: int) -> float:
    """What leaves a process: the edges of every ring that join devices of two processes.

    Args:
        mesh: The devices.
        axis: The axis along which the rings lie.
        size: The bytes of the all-reduces.
        clients: The number of processes.
    """
    ring, stride = mesh.axis(axis), 1 if axis == "tensor" else mesh.axis("tensor")
    per_client = mesh.size // clients
    period = math.lcm(ring * stride, per_client)  # after which rings and processes begin together again
    crossing = 0
    for device in range(period if per_client % (ring * stride) else 0):
        place = device // stride % ring
        neighbour = device + ((place + 1) % ring - place) * stride
        crossing += device // per_client != neighbour // per_client
    return mesh.size // period * crossing * all_reduce_bytes(size, ring)


def tpu(run: Run, backend: str) -> Ledger:
    """Every core holds the model, or along tensor its shard of each parameter that the split table cuts.

    Args:
        run: What is trained or compiled.
        backend: The backend, as for `replicated`.

    Returns:
        The footprint of all cores; exchanges only without the axis tensor.
    """
    parts = run.mesh.axis("tensor")
    footprints = (holder(run, _tensor_elements(run.workload.model, parts), count=run.num_devices),)
    if parts > 1:
        return Ledger(footprints, (), 0.0)
    return dataclasses.replace(replicated(run, backend), footprints=footprints)  # XLA decides what it keeps


def _tensor_elements(model: ModelSpec, parts: int) -> int:
    """The parameter elements of a device along a tensor axis of `parts`: its shard of each that is split, all others."""
    split = even_split_table(model, parts)
    return sum(param.size // (parts if name in split else 1) for name, param in model.params().items())

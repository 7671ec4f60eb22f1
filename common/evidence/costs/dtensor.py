"""A mesh data x tensor: parameters split along tensor, the batch along data.

With D x T devices, S the elements a device holds, B/D its examples and item the bytes of a number, one device's
exchanges, all of them all-reduces where the devices are CPUs:

    along tensor   each pair of a layer split by column and one split by row: its output forwards, its input's gradient
                   backwards, B/D x positions x width each; the split tables and the split logits are made whole
    along data     all gradients in one, the split tables' whole; and the targets, by which the loss looks up

DTensor packs several tensors into one all-reduce of a multiple of 1024 elements.

References:
    Shoeybi et al., arXiv 1909.08053, section 3 (two all-reduces a pair of layers, each way).
"""

import dataclasses
import math
from collections.abc import Mapping

from samestep.common.evidence.costs.collectives import all_reduce_bytes
from samestep.common.evidence.costs.sizes import ID_BYTES, holder, tensor_elements
from samestep.common.ledger import Exchange, Ledger
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.workload.split import even_split_table

_PACKED = 1024


def cost(run: Run, backend: str) -> Ledger:
    """What a step costs on a mesh data x tensor.

    Args:
        run: What is trained; its option `clients` is the number of processes.
        backend: "grpc", which only what leaves a process takes.

    Returns:
        One footprint per device, and the all-reduces that a device takes part in.
    """
    mesh, model = run.mesh, run.workload.model
    split = even_split_table(model, mesh.axis("tensor")) if mesh.axis("tensor") > 1 else {}
    footprint = holder(run, tensor_elements(model, mesh.axis("tensor")))
    gathered = _packed([model.params()[name].size for name in split if model.params()[name].lookups]) * run.item_bytes
    footprint = dataclasses.replace(footprint, params_peak_bytes=footprint.params_bytes + gathered)
    tensor = _along_tensor(run, split) if mesh.axis("tensor") > 1 else []
    data = _along_data(run, split) if mesh.axis("data") > 1 else []
    summed = (Exchange("all_reduce", len(tensor + data), sum(tensor + data)),) if tensor + data else ()
    sent = sum(_leaving(mesh, "tensor", size, run.options.clients) for size in tensor)
    sent += sum(_leaving(mesh, "data", size, run.options.clients) for size in data)
    return Ledger((footprint,) * mesh.size, summed, sent)


def _packed(sizes: list[int]) -> int:
    return math.ceil(sum(sizes) / _PACKED) * _PACKED if len(sizes) > 1 else sum(sizes)


def _along_tensor(run: Run, split: Mapping[str, int]) -> list[int]:
    """The bytes of each all-reduce along tensor."""
    params = run.workload.model.params()
    rows = run.batch_size // run.mesh.axis("data") * math.prod(run.workload.model.targets().shape)
    tables = [params[name].size for name in split if params[name].lookups]
    sizes = [_packed(tables)] if tables else []
    inside = ""
    for index, (name, param) in enumerate(params.items()):
        if param.role != "kernel" or name not in split:
            continue
        if split[name] == 0:
            sizes.append(rows * param.shape[1])
            inside = ""
        elif not inside:
            inside = name
            if index:  # what the first layer takes is data, and has no gradient
                sizes.append(rows * param.shape[0])
    if inside:  # the last layer is split by column
        sizes.append(rows * params[inside].shape[1])
    return [size * run.item_bytes for size in sizes]


def _along_data(run: Run, split: Mapping[str, int]) -> list[int]:
    """The bytes of each all-reduce along data."""
    model, parts = run.workload.model, run.mesh.axis("tensor")
    gradients = [
        param.size // (parts if name in split and not param.lookups else 1) for name, param in model.params().items()
    ]
    sizes = [_packed([*gradients, 1]) * run.item_bytes]  # and the loss
    if model.loss == "cross_entropy":
        sizes.append(run.batch_size * math.prod(model.targets().shape) * ID_BYTES)
    return sizes


def _leaving(mesh: Mesh, axis: str, size: int, clients: int) -> float:
    """What leaves a process: the edges of every ring that join devices of two processes.

    Args:
        mesh: The devices.
        axis: Along which the rings lie.
        size: The bytes of the all-reduce.
        clients: The number of processes.
    """
    data, tensor = mesh.axis("data"), mesh.axis("tensor")
    rings = [[d * tensor + t for t in range(tensor)] for d in range(data)]
    if axis == "data":
        rings = [list(ring) for ring in zip(*rings, strict=True)]
    per_client = mesh.size // clients
    crossing = sum(
        device // per_client != ring[(place + 1) % len(ring)] // per_client
        for ring in rings
        for place, device in enumerate(ring)
    )
    return crossing * all_reduce_bytes(size, len(rings[0]))

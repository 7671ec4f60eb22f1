"""A mesh data x tensor: parameters cut along tensor, the batch along data.

With D x T devices, S the elements a device holds, B/D its examples and item the bytes of a number, one device's
exchanges, all of them all-reduces where the devices are CPUs:

    along tensor   each pair of a column-cut and a row-cut layer: its output forwards, its input's gradient backwards,
                   B/D x positions x width each; the cut tables and the cut logits are made whole
    along data     all gradients in one, the cut tables' whole; and the targets, by which the loss looks up

DTensor packs several tensors into one all-reduce of a multiple of 1024 elements.

References:
    Shoeybi et al., arXiv 1909.08053, section 3 (two all-reduces a pair of layers, each way).
"""

import dataclasses
import math

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES, all_reduce_bytes
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import ModelSpec, even_split_table
from common.workload.table import Workload

_PACKED = 1024


@dataclasses.dataclass(frozen=True)
class _AllReduce:
    axis: str
    bytes: int


def tensor_split(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """What a step costs on a mesh data x tensor.

    Args:
        workload: What is trained.
        config: A checked configuration; its option `clients` is the number of processes.
        backend: "grpc", which only what leaves a process takes.
    """
    mesh = Mesh.parse(config.mesh or "data=1")
    model, item = workload.model, ITEM_BYTES[config.dtype]
    split = even_split_table(model, mesh.axis("tensor")) if mesh.axis("tensor") > 1 else {}
    held = sum(p.size // (mesh.axis("tensor") if name in split else 1) for name, p in model.params().items()) * item
    whole_tables = _packed([model.params()[name].size for name in split if model.params()[name].lookups]) * item
    slots = len(workload.optimizer(config).slots) * held
    footprint = Footprint("each", held, held + whole_tables, held, slots, "law")
    exchanges = _along_tensor(model, split, config, mesh) + _along_data(model, split, config, mesh)
    total = sum(each.bytes for each in exchanges)
    summed = (Exchange("all_reduce", len(exchanges), total),) if exchanges else ()
    clients = int(config.options["clients"] or 1)
    sent = sum(_leaving(mesh, each, clients) for each in exchanges)
    return Ledger((footprint,) * mesh.size, summed, sent)


def _packed(sizes: list[int]) -> int:
    return math.ceil(sum(sizes) / _PACKED) * _PACKED if len(sizes) > 1 else sum(sizes)


def _along_tensor(model: ModelSpec, split: dict[str, int], config: RunConfig, mesh: Mesh) -> list[_AllReduce]:
    if mesh.axis("tensor") == 1:
        return []
    params, item = model.params(), ITEM_BYTES[config.dtype]
    rows = (config.batch_size or 0) // mesh.axis("data") * math.prod(model.targets().shape)
    tables = [params[name].size for name in split if params[name].lookups]
    sizes = [_packed(tables)] if tables else []
    inside = ""
    for index, (name, param) in enumerate(params.items()):
        if param.lookups or len(param.shape) != 2 or name not in split:
            continue
        if split[name] == 0:
            sizes.append(rows * param.shape[1])
            inside = ""
        elif not inside:
            inside = name
            if index:  # what the first layer takes is data, and has no gradient
                sizes.append(rows * param.shape[0])
    if inside:  # the last layer is cut by column
        sizes.append(rows * params[inside].shape[1])
    return [_AllReduce("tensor", size * item) for size in sizes]


def _along_data(model: ModelSpec, split: dict[str, int], config: RunConfig, mesh: Mesh) -> list[_AllReduce]:
    if mesh.axis("data") == 1:
        return []
    params = model.params()
    cut = {name for name in split if not params[name].lookups}
    gradients = [param.size // (mesh.axis("tensor") if name in cut else 1) for name, param in params.items()]
    found = [_AllReduce("data", _packed([*gradients, 1]) * ITEM_BYTES[config.dtype])]  # and the loss
    if model.loss == "cross_entropy":
        targets = (config.batch_size or 0) * math.prod(model.targets().shape)
        found.append(_AllReduce("data", targets * 8))
    return found


def _leaving(mesh: Mesh, exchange: _AllReduce, clients: int) -> float:
    """What leaves a process: the edges of every ring that join devices of two processes."""
    data, tensor = mesh.axis("data"), mesh.axis("tensor")
    if exchange.axis == "data":
        rings = [[d * tensor + t for d in range(data)] for t in range(tensor)]
    else:
        rings = [[d * tensor + t for t in range(tensor)] for d in range(data)]
    per_client = mesh.size // clients
    crossing = sum(
        device // per_client != ring[(place + 1) % len(ring)] // per_client
        for ring in rings
        for place, device in enumerate(ring)
    )
    return crossing * all_reduce_bytes(exchange.bytes, len(rings[0]))

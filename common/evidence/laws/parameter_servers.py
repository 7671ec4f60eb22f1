"""TensorFlow's parameter servers hold everything; a worker reads what an update needs and sends its gradients back.

With P the bytes of the parameters that are read whole and R those of the rows that a batch looks up in tables, an update
pulls P + R and pushes P + R; it runs on the servers, so that no slot travels. Serial, a step is one update on the global
batch; asynchronous, it is one on each worker's shard. The chief sends each batch to the worker that takes it.

References:
    Li et al. 2014, "Scaling distributed machine learning with the parameter server".
"""

import math

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import ArraySpec
from common.workload.table import Workload

SERVER_BYTES, PART_BYTES, SLOT_BYTES, TABLE_BYTES = 3000, 1300, 180, 350
"""About what tensorflow 2.21 sends in an update besides numbers: for each server; for each part of a variable, which is
asked for, answered, named in the call, locked and updated; for each slot of a part; for each part of a table."""
ID_BYTES = 8


def parameter_servers(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Tables are cut by rows over the servers; all parts, in order, go to the servers in turn.

    Args:
        workload: What is trained.
        config: A checked configuration; its option `parameter_servers` is the number of servers.
        backend: "grpc".
    """
    workers, servers = Mesh.parse(config.mesh or "data=1").size, int(config.options["parameter_servers"] or 1)
    updates = 1 if config.options["consistency"] == "serial" else workers
    item, batch = ITEM_BYTES[config.dtype], config.batch_size or 0
    params = workload.model.params().values()
    tables = [param for param in params if param.lookups]
    slots = len(workload.optimizer(config).slots)
    held, part = [0] * servers, 0
    for param in params:
        shards = min(servers, param.shape[0]) if param.lookups else 1
        for shard in range(shards):
            rows = param.shape[0] // shards + (shard < param.shape[0] % shards)
            held[part % servers] += rows * (param.size // param.shape[0]) * item
            part += 1
    whole = sum(param.size for param in params if not param.lookups) * item
    looked_up = sum(param.lookups * param.shape[1] for param in tables) * item * batch
    moved = whole + looked_up // updates
    footprints = (
        Footprint("chief", 0, 0, 0, 0, "law"),
        *(Footprint("worker", 0, whole, moved, 0, "law"),) * workers,
        *(Footprint("ps", size, size, size, slots * size, "law") for size in held),
    )
    exchanges = tuple(Exchange(name, updates * len(params), updates * moved) for name in ("pull", "push"))
    ids = sum(param.lookups for param in tables) * batch * ID_BYTES
    examples = batch * (_example_bytes(workload.model.inputs(), item) + _example_bytes(workload.model.targets(), item))
    calls = servers * SERVER_BYTES + part * (PART_BYTES + slots * SLOT_BYTES)
    calls += sum(min(servers, param.shape[0]) for param in tables) * TABLE_BYTES
    return Ledger(footprints, exchanges, updates * (2 * moved + calls) + ids + examples)


def _example_bytes(array: ArraySpec, item: int) -> int:
    return math.prod(array.shape) * (item if array.ids is None else ID_BYTES)

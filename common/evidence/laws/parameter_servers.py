"""TensorFlow's parameter servers hold everything; a worker reads what a step needs and sends its gradients back.

With P the bytes of the parameters that are read whole and R those of the rows that a batch looks up in tables, a step
pulls P + R and pushes P + R; the update runs on the servers, so that no slot travels.

References:
    Li et al. 2014, "Scaling distributed machine learning with the parameter server".
"""

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.table import Workload


def parameter_servers(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Tables are cut by rows over the servers; all parts, in order, go to the servers in turn.

    Args:
        workload: What is trained.
        config: A checked configuration; its option `parameter_servers` is the number of servers.
        backend: "grpc".
    """
    workers, servers = Mesh.parse(config.mesh or "data=1").size, int(config.options["parameter_servers"] or 1)
    item = ITEM_BYTES[config.dtype]
    params = workload.model.params().values()
    slots = len(workload.optimizer(config).slots)
    held, part = [0] * servers, 0
    for param in params:
        shards = min(servers, param.shape[0]) if param.lookups else 1
        for shard in range(shards):
            rows = param.shape[0] // shards + (shard < param.shape[0] % shards)
            held[part % servers] += rows * (param.size // param.shape[0]) * item
            part += 1
    whole = sum(param.size for param in params if not param.lookups) * item
    looked_up = sum(param.lookups * param.shape[1] for param in params if param.lookups) * item
    moved = whole + looked_up * (config.batch_size or 0)
    footprints = (
        *(Footprint("worker", 0, whole, moved, 0, "law"),) * workers,
        *(Footprint("ps", size, size, size, slots * size, "law") for size in held),
    )
    exchanges = (Exchange("pull", len(params), moved), Exchange("push", len(params), moved))
    return Ledger(footprints, exchanges, 2 * moved)

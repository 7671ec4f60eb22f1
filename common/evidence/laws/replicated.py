"""Every device holds the whole model: single devices and data parallelism.

With P the parameter bytes and N devices, the gradients' all-reduce sends 2(N-1)/N * P a rank; between the devices of
one process it sends nothing.

References:
    Rajbhandari et al., arXiv 1910.02054, section 7.1.
"""

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES, all_reduce_bytes
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import num_params
from common.workload.table import Workload


def replicated(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Every device holds everything; gradients are summed over all devices once a step.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "memory" (devices of one process), "gloo", "nccl" or "grpc".
    """
    devices = Mesh.parse(config.mesh or "data=1").size
    params = num_params(workload.model) * ITEM_BYTES[config.dtype]
    slots = len(workload.optimizer(config).slots) * params
    footprint = Footprint("each", params, params, params, slots, "law")
    exchanges = (Exchange("all_reduce", 1, params),) if devices > 1 else ()
    sent = 0 if backend == "memory" else all_reduce_bytes(params, devices) * devices
    return Ledger((footprint,) * devices, exchanges, sent)

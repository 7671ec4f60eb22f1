"""The cores of a TPU: data parallelism is that of any devices; on a mesh with tensor, what each core holds.

With the axis tensor, XLA alone decides what moves along it, so that no exchange is predicted.
"""

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES
from common.evidence.laws.replicated import replicated
from common.ledger import Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import even_split_table
from common.workload.table import Workload


def per_core(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Every core holds the model, or along tensor its part of each parameter that the split table cuts.

    Args:
        workload: What is trained or compiled.
        config: A checked configuration.
        backend: As for `replicated`.
    """
    mesh = Mesh.parse(config.mesh or "data=1")
    parts = mesh.axis("tensor")
    if parts == 1:
        return replicated(workload, config, backend)
    split, params = even_split_table(workload.model, parts), workload.model.params()
    held = sum(p.size // (parts if name in split else 1) for name, p in params.items()) * ITEM_BYTES[config.dtype]
    slots = len(workload.optimizer(config).slots) * held
    return Ledger((Footprint("each", held, held, held, slots, "law"),) * mesh.size, (), 0.0)

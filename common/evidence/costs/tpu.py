"""The cores of a TPU: data parallelism is that of any devices; on a mesh with tensor, what each core holds.

With the axis tensor, XLA alone decides what moves along it, so no exchange is predicted.
"""

from samestep.common.evidence.costs import replicated
from samestep.common.evidence.costs.sizes import holder, tensor_elements
from samestep.common.ledger import Ledger
from samestep.common.strategy import Run


def cost(run: Run, backend: str) -> Ledger:
    """Every core holds the model, or along tensor its shard of each parameter that the split table cuts.

    Args:
        run: What is trained or compiled.
        backend: As for `replicated`.

    Returns:
        One footprint per core; exchanges only without the axis tensor.
    """
    parts = run.mesh.axis("tensor")
    if parts == 1:
        return replicated.cost(run, backend)
    return Ledger((holder(run, tensor_elements(run.workload.model, parts)),) * run.num_devices, (), 0.0)

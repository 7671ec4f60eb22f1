"""One device stores, the others compute, all in one process: plain copies, and nothing on any wire.

With P the parameter bytes and N compute devices, the busiest device copies the larger of R + N P and N R + P: the first
compute device sums the gradients for the store, and every replica reads R there: P, but of a table only the rows that it
looks up.
"""

from samestep.common.evidence.costs.sizes import holder
from samestep.common.ledger import Exchange, Footprint, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_params


def cost(run: Run, backend: str) -> Ledger:
    """Each compute device reads every parameter, and sends every gradient back.

    Args:
        run: What is trained.
        backend: "memory".

    Returns:
        The footprints of the compute devices and, last, of the store; and the copies.
    """
    devices, item, params = run.num_devices, run.item_bytes, run.workload.model.params().values()
    store = holder(run, num_params(run.workload.model), "store")
    total, examples = store.params_bytes, run.batch_size // devices
    dense = sum(param.size for param in params if not param.lookups) * item
    rows = sum(examples * param.lookups * param.shape[1] for param in params if param.lookups) * item
    compute = Footprint(
        device="compute", params_bytes=0, params_peak_bytes=dense, gradients_bytes=total, optimizer_bytes=0
    )
    read = dense + rows
    copies = Exchange("copy", (devices + 1) * len(params), max(read + devices * total, devices * read + total))
    return Ledger((*(compute,) * devices, store), (copies,), 0)

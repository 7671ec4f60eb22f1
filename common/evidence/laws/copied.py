"""Between the devices of one process: nothing is on any wire, and plain copies take the place of collectives.

With P the parameter bytes, T the number of parameters and N devices, as seen from the busiest device:

    ring, NCCL                one all-reduce of P
    reduction to one device   2(N-1)P: every gradient to the first device, the sum back
    hierarchical copy         N P: half of the devices to one root, the two roots to each other, and back
    central storage           the larger of R + N P and N R + P: the first compute device sums the gradients for the
                              store, and every replica reads R there: P, but of a table only the rows it looks up
"""

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES
from common.evidence.laws.replicated import replicated
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import num_params
from common.workload.table import Workload


def mirrored(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Every device holds everything; what they exchange depends on the option `reduce`.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "memory".
    """
    ledger = replicated(workload, config, backend)
    devices = len(ledger.footprints)
    params, bytes_ = len(workload.model.params()), ledger.footprints[0].params_bytes
    copies = {
        "reduction_to_one_device": Exchange("copy", 2 * (devices - 1) * params, 2 * (devices - 1) * bytes_),
        "hierarchical_copy": Exchange("copy", devices, devices * bytes_),  # packed into one tensor
    }
    reduce = str(config.options["reduce"])
    exchanges = (copies[reduce],) if reduce in copies and devices > 1 else ledger.exchanges
    return Ledger(ledger.footprints, exchanges, 0)


def centralized(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """One device stores, the others compute; each reads every parameter, and sends every gradient back.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "memory".
    """
    devices = Mesh.parse(config.mesh or "data=1").size
    item = ITEM_BYTES[config.dtype]
    total = num_params(workload.model) * item
    params = workload.model.params().values()
    whole = sum(param.size for param in params if not param.lookups) * item
    examples = (config.batch_size or 0) // devices
    rows = sum(examples * param.lookups * param.shape[1] for param in params if param.lookups) * item
    slots = len(workload.optimizer(config).slots) * total
    compute = Footprint("compute", 0, whole, total, 0, "law")
    store = Footprint("store", total, total, total, slots, "law")
    read = whole + rows
    busiest = max(read + devices * total, devices * read + total)
    copies = Exchange("copy", (devices + 1) * len(params), busiest)
    return Ledger((*(compute,) * devices, store), (copies,), 0)

"""Between the devices of one process: nothing is on any wire, and plain copies may take the place of collectives.

With P the parameter bytes and N devices, as seen from the busiest device:

    ring, NCCL                one all-reduce of P
    reduction to one device   2(N-1)P: every gradient to the first device, the sum back
    hierarchical copy         N P: half of the devices to one root, the two roots to each other, and back
"""

import dataclasses

from samestep.common.evidence.costs import replicated
from samestep.common.ledger import Exchange, Ledger
from samestep.common.strategy import Run


def cost(run: Run, backend: str) -> Ledger:
    """Every device holds everything; what they exchange depends on the option `reduce`.

    Args:
        run: What is trained.
        backend: "memory".

    Returns:
        One footprint per device, and the all-reduce or the copies.
    """
    ledger, devices = replicated.cost(run, backend), run.num_devices
    params, size = len(run.workload.model.params()), ledger.footprints[0].params_bytes
    copies = {
        "reduction_to_one_device": Exchange("copy", 2 * (devices - 1) * params, 2 * (devices - 1) * size),
        "hierarchical_copy": Exchange("copy", devices, devices * size),  # packed into one tensor
    }
    if devices == 1 or run.options.reduce not in copies:
        return ledger
    return dataclasses.replace(ledger, exchanges=(copies[run.options.reduce],))

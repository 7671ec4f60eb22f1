"""A master and its replicas in one process, with five exchanges a batch: nothing is on any wire.

With P the parameter bytes, I and O the bytes of a batch's inputs and outputs, and N replicas, of which the master is
one, the master hands out (N-1)/N I + (N-1) P + (N-1)/N O, and takes back (N-1)/N O + (N-1) P.

References:
    torch/nn/parallel/data_parallel.py of torch 2.13: scatter, replicate, parallel_apply, gather; and their backward.
"""

import math

from samestep.common.evidence.costs.sizes import example_bytes, holder
from samestep.common.ledger import Exchange, Footprint, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_params


def cost(run: Run, backend: str) -> Ledger:
    """The master holds everything; each other replica holds the parameters for the length of a step.

    Args:
        run: What is trained.
        backend: "memory".

    Returns:
        The footprints of the master and of each other replica, and the copies between them.
    """
    model, others = run.workload.model, run.num_devices - 1
    master = holder(run, num_params(model), "master")
    replica = Footprint(
        device="replica",
        params_bytes=0,
        params_peak_bytes=master.params_bytes,
        gradients_bytes=0,
        optimizer_bytes=0,
    )
    examples = run.batch_size * others // run.num_devices
    sent = examples * example_bytes(model.inputs(), run.item_bytes)
    returned = examples * math.prod(model.segments()[-1].outputs) * run.item_bytes
    count = run.accumulation_steps * others
    sizes = {
        "scatter_inputs": sent,
        "broadcast_parameters": count * master.params_bytes,
        "gather_outputs": returned,
        "scatter_output_gradients": returned,
        "reduce_gradients": count * master.params_bytes,
    }
    exchanges = tuple(Exchange(name, count, size) for name, size in sizes.items()) if others else ()
    return Ledger((master, *(replica,) * others), exchanges, 0)

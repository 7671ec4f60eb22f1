"""A master and its replicas in one process, with five exchanges a batch: nothing is on any wire.

With P the parameter bytes, I and O the bytes of a batch's inputs and outputs, and N replicas, of which the master is
one, the master hands out (N-1)/N I + (N-1) P + (N-1)/N O, and takes back (N-1)/N O + (N-1) P.

References:
    torch/nn/parallel/data_parallel.py of torch 2.13: scatter, replicate, parallel_apply, gather; and their backward.
"""

import math

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import num_params
from common.workload.table import Workload

_ID_BYTES = 8


def scattered(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """The master holds everything; each other replica holds the parameters for the length of a step.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "memory".
    """
    others = Mesh.parse(config.mesh or "data=1").size - 1
    item, micro = ITEM_BYTES[config.dtype], config.techniques.micro_batches
    params = num_params(workload.model) * item
    slots = len(workload.optimizer(config).slots) * params
    master = Footprint("master", params, params, params, slots, "law")
    replica = Footprint("replica", 0, params, 0, 0, "law")

    inputs = workload.model.inputs()
    examples = (config.batch_size or 0) * others // (others + 1)
    sent = examples * math.prod(inputs.shape) * (item if inputs.ids is None else _ID_BYTES)
    returned = examples * math.prod(workload.model.cuts()[-1].outputs) * item
    copies = micro * others * params
    exchanges = (
        Exchange("scatter_inputs", micro * others, sent),
        Exchange("broadcast_parameters", micro * others, copies),
        Exchange("gather_outputs", micro * others, returned),
        Exchange("scatter_output_gradients", micro * others, returned),
        Exchange("reduce_gradients", micro * others, copies),
    )
    return Ledger((master, *(replica,) * others), exchanges if others else (), 0)

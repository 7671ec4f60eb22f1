"""One stage of layers a worker, reached by calls: what `mp` costs without collectives, the calls themselves on top."""

import dataclasses

from samestep.common.evidence.costs.pp import pipelined
from samestep.common.evidence.costs.sizes import example_bytes
from samestep.common.ledger import Ledger
from samestep.common.strategy import Run
from samestep.common.workload.pipeline import Schedule

_CALLS_BYTES = 5500
"""About what torch 2.13 sends to and from each further RPC worker in a step besides tensors: pickled calls, replies."""


def cost(run: Run, backend: str) -> Ledger:
    """Activations and their gradients between workers; the targets go to the last one.

    Args:
        run: What is trained.
        backend: "tensorpipe".

    Returns:
        One footprint per worker, and no exchanges.
    """
    ledger = pipelined(run, Schedule(), run.accumulation_steps, "memory")
    others = run.num_devices - 1
    targets = run.batch_size * example_bytes(run.workload.model.targets(), run.item_bytes) if others else 0
    sent = ledger.sent_bytes_per_step + targets + others * _CALLS_BYTES
    return dataclasses.replace(ledger, exchanges=(), sent_bytes_per_step=sent)

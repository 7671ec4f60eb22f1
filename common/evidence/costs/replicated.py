"""Every device holds the full model: single devices and data parallelism.

With P the parameter bytes and N devices, the gradients' all-reduce sends 2(N-1)/N * P a rank; between the devices of
one process it sends nothing.

References:
    Rajbhandari et al., arXiv 1910.02054, section 7.1.
"""

import dataclasses

from samestep.common.evidence.costs.collectives import all_reduce_bytes, framing_bytes
from samestep.common.evidence.costs.sizes import holder
from samestep.common.ledger import Exchange, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_params


def cost(run: Run, backend: str) -> Ledger:
    """Every device holds everything; gradients are summed over all devices once a step.

    Args:
        run: What is trained.
        backend: "memory" (devices of one process), "gloo", "nccl" or "grpc".

    Returns:
        One footprint per device, and a single all-reduce.
    """
    footprint, devices = holder(run, num_params(run.workload.model)), run.num_devices
    exchanges = (Exchange("all_reduce", 1, footprint.params_bytes),) if devices > 1 else ()
    sent = 0 if backend == "memory" else all_reduce_bytes(footprint.params_bytes, devices) * devices
    return Ledger((footprint,) * devices, exchanges, sent)


def cost_in_pieces(run: Run, pieces: int, backend: str) -> Ledger:
    """The same, with the all-reduce in several pieces, each with its own framing.

    Args:
        run: What is trained.
        pieces: How many.
        backend: "gloo" or "nccl".
    """
    ledger, devices = cost(run, backend), run.num_devices
    exchanges = (Exchange("all_reduce", pieces, ledger.footprints[0].params_bytes),)
    sent = ledger.sent_bytes_per_step + pieces * devices * framing_bytes("all_reduce", devices, backend)
    return dataclasses.replace(ledger, exchanges=exchanges, sent_bytes_per_step=sent)

"""ZeRO stage 1: the optimizer state spread over N ranks, each of which updates some full parameters.

With P the parameter bytes, a step sends, over all ranks, 2(N-1) P for DDP's all-reduce of the gradients, and (N-1) P
for the broadcast of the parameters.

References:
    Rajbhandari et al., arXiv 1910.02054.
"""

import dataclasses

from samestep.common.evidence.costs.collectives import MESSAGE_BYTES
from samestep.common.evidence.costs.ddp import DEFAULT_CAPS, bucketed
from samestep.common.ledger import Exchange, Ledger
from samestep.common.strategy import Run

_DUMMY_BYTES = 4
"""What a rank without parameters broadcasts: one float32 (torch 2.13)."""


def cost(run: Run, backend: str) -> Ledger:
    """Each rank keeps the optimizer state of some full parameters, updates these, and broadcasts them.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and DDP's exchanges with one broadcast per rank.
    """
    ledger, devices = bucketed(run, DEFAULT_CAPS, backend), run.num_devices
    owned = _owned_bytes(run)
    slots = len(run.optimizer.slots)
    footprints = tuple(
        dataclasses.replace(each, optimizer_bytes=slots * own)
        for each, own in zip(ledger.footprints, owned, strict=True)
    )
    broadcast = Exchange("broadcast", devices, sum(own or _DUMMY_BYTES for own in owned))
    sent = (devices - 1) * (broadcast.bytes_per_step + devices * MESSAGE_BYTES[backend])
    return Ledger(footprints, (*ledger.exchanges, broadcast), ledger.sent_bytes_per_step + sent)


def _owned_bytes(run: Run) -> list[int]:
    """The parameter bytes that each rank updates: the largest parameter left goes to the rank that has the least."""
    owned = [0] * run.num_devices
    for size in sorted((param.size for param in run.workload.model.params().values()), reverse=True):
        owned[owned.index(min(owned))] += size * run.item_bytes
    return owned

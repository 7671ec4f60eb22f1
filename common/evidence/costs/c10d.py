"""Data parallelism by hand: each rank sends 2(N-1)/N of the gradients' bytes, in an all-reduce or around a ring.

References:
    Patarasuk and Yuan 2009 (the ring).
"""

from samestep.common.evidence.costs import replicated
from samestep.common.evidence.costs.collectives import MESSAGE_BYTES
from samestep.common.ledger import Exchange, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_params


def cost(run: Run, backend: str) -> Ledger:
    """One all-reduce of the flat gradient; with the option `ring` its 2(N-1) messages, each 1/N of it.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and the all-reduce or the sends.
    """
    if not run.options.ring:
        return replicated.cost_in_pieces(run, 1, backend)
    devices = run.num_devices
    chunk = -(-num_params(run.workload.model) // devices) * run.item_bytes
    messages = 2 * (devices - 1)
    exchanges = (Exchange("send", messages, messages * chunk),) if messages else ()
    sent = devices * messages * (chunk + MESSAGE_BYTES[backend])
    return Ledger(replicated.cost(run, backend).footprints, exchanges, sent)

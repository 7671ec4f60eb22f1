"""Data parallelism as in `replicated`, with the all-reduce in DDP's buckets; their total does not depend on them.

References:
    Li et al., arXiv 2006.15704, section 3.2.3 (buckets).
"""

from samestep.common.evidence.costs.replicated import cost_in_pieces
from samestep.common.ledger import Ledger
from samestep.common.strategy import Run

DEFAULT_CAPS = (1 << 20, 25 << 20)
"""DDP's own caps: the first bucket is small to be in flight early."""


def cost(run: Run, backend: str) -> Ledger:
    """One all-reduce a bucket; the option `bucket_bytes` caps each.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and the all-reduces.
    """
    cap: int | None = run.options.bucket_bytes
    return bucketed(run, DEFAULT_CAPS if cap is None else (cap,), backend)


def bucketed(run: Run, caps: tuple[int, ...], backend: str) -> Ledger:
    """One all-reduce a bucket.

    Args:
        run: What is trained.
        caps: A bucket is closed once it holds so many bytes; the last cap is that of all further buckets.
        backend: "gloo" or "nccl".
    """
    filled = closed = 0
    # DDP fills its buckets in the order in which the backward pass yields the gradients: the last parameter's first.
    for param in reversed(run.workload.model.params().values()):
        filled += param.size * run.item_bytes
        if filled >= caps[min(closed, len(caps) - 1)]:
            filled, closed = 0, closed + 1
    return cost_in_pieces(run, closed + (filled > 0), backend)

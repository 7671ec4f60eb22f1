"""ZeRO stage 2: gradients and optimizer state in N shards, parameters full from a block's forward to its backward pass.

With P the parameter bytes, a step sends, over all ranks, (N-1) P for one all-gather and as much for the reduce-scatter;
over gloo twice that, since gloo's is an all-reduce.

References:
    Rajbhandari et al., arXiv 1910.02054; Zhao et al., arXiv 2304.11277 (FSDP).
"""

from samestep.common.evidence.costs.fsdp import fully_sharded
from samestep.common.ledger import Ledger
from samestep.common.strategy import Run


def cost(run: Run, backend: str) -> Ledger:
    """Every block is gathered once a micro-batch and kept for its backward pass.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and the collectives along both axes.
    """
    return fully_sharded(run, gathers=1, backend=backend)

"""One stage of layers a rank, one batch at a time: a pipeline with a single micro-batch. See `pp`."""

from samestep.common.evidence.costs.pp import pipelined
from samestep.common.ledger import Ledger
from samestep.common.strategy import Run
from samestep.common.workload.pipeline import Schedule


def cost(run: Run, backend: str) -> Ledger:
    """Activations go to the next rank and their gradients come back, once per accumulation step.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and the sends of rank 0.
    """
    return pipelined(run, Schedule(), run.accumulation_steps, backend)

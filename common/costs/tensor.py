"""Models split inside their layers, along the axis `tensor` of a mesh.

tp: every rank computes its part of each pair of layers on the full batch; `common/axes/tensor.py` has what they exchange.
"""

import dataclasses

from samestep.common.axes.used import held_params
from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.shards import norms
from samestep.common.costs.sizes import holder, symmetric, with_agreement
from samestep.common.costs.within import step_within
from samestep.common.ledger import Footprint, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.parameters import num_trained, trained


def tp(run: Run, backend: str) -> Ledger:
    """Predicts ranks that hold their shard of each split layer, and everything else in full.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprint of all ranks, and the collectives of both passes.
    """
    of_norm = norms(run, trained(run.workload.model.params())) if run.techniques.need_norm else ()
    sends = with_agreement(run, [*step_within(run), *of_norm]) if run.num_devices > 1 else ()
    return symmetric(run, tp_footprints(run), sends, backend)


def tp_footprints(run: Run) -> tuple[Footprint, ...]:
    """Predicts the memory of ranks that hold a part of each split layer, and everything else in full."""
    every = held_params(run).values()
    held = holder(run, sum(param.size for param in every), count=run.num_devices, trained=num_trained(every))
    return (dataclasses.replace(held, activations_bytes=activation_bytes(run)),)

"""Every device holds the full model and, of each example, a part of the positions, along the mesh axis `context`.

`common/axes/context.py` says what attention layers exchange. The gradients are summed over all ranks, as in data
parallelism.
"""

import dataclasses

from samestep.common.costs.data_parallel import flat, replicated
from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.sizes import symmetric
from samestep.common.costs.within import step_within
from samestep.common.features.used import with_layers
from samestep.common.ledger import Ledger
from samestep.common.mesh import HEADS, Mesh
from samestep.common.strategy import Run
from samestep.common.techniques.used import computed_twice, without


def cp(run: Run, backend: str) -> Ledger:
    """Predicts ranks that exchange positions for heads in each attention layer, and sum all gradients in one piece.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprint of all ranks, the exchanges of both passes, and the all-reduce.
    """
    return _with_exchanges(run, flat(run, backend), backend)


def _with_exchanges(run: Run, summed: Ledger, backend: str, sums_alone: bool = False) -> Ledger:
    """Puts the exchanges of attention before the sums of gradients, and the other exchanges of layers between the passes.

    Args:
        run: What is trained.
        summed: The ledger of the sums of gradients.
        backend: The backend that carries them.
        sums_alone: Whether a reduce-scatter is an all-to-all of the same bytes, which each device then adds up.
    """
    within = step_within(run)
    if sums_alone:
        spelled = {"reduce_scatter": "all_to_all"}
        within = [dataclasses.replace(send, operation=spelled.get(send.operation, send.operation)) for send in within]
    behind = (send for send in summed.sends if send.phase != "forward")
    return symmetric(run, summed.footprints, (*with_layers(run, within), *behind), backend)


def context(run: Run, backend: str) -> Ledger:
    """Predicts the same exchanges between the replicas of one process; each keeps activations as for fewer whole examples.

    TensorFlow keeps the inputs of attention's products, and its outputs only where the next layer takes them. So one of
    N replicas keeps 1/N of everything, including the scores of its own heads; it keeps the whole mask, and the cosines
    and sines of all positions. It keeps neither gathered keys and values nor what was computed from them. Of attention,
    a recomputed segment keeps only the dropout keys of all of its examples.

    Args:
        run: What is trained.
        backend: "memory".

    Returns:
        The footprint of all replicas, the exchanges of both passes, and the all-reduce.
    """
    mesh = run.mesh if computed_twice(run) else Mesh.of_replicas(run.mesh.size)
    is_even = run.batch_size % (mesh.replicas * run.passes) == 0
    is_cut = run.mesh.parts("positions") > 1
    options = run.options if is_cut else dataclasses.replace(run.options, attention_exchange=HEADS)
    kept = activation_bytes(dataclasses.replace(run, mesh=mesh, options=options)) if is_even else None
    # Projections return numbers of the variables' type.
    in_one_type = dataclasses.replace(run, techniques=without("gradient_error", run.techniques))
    summed = replicated(run, backend)
    held = tuple(dataclasses.replace(each, activations_bytes=kept) for each in summed.footprints)
    # TensorFlow 2.21 has a reduce-scatter only between GPUs.
    return _with_exchanges(in_one_type, dataclasses.replace(summed, footprints=held), backend, sums_alone=True)

"""Every device holds the full model, and of each example some of the positions, along the axis `context` of a mesh.

With t positions of a rank, N ranks, B examples of a pass and D the width, an attention hands over 3 B t D numbers forward, for
queries, keys and values, and B t D for what it mixed; as many backward. All-to-all, of which a rank keeps 1/N. The gradients
are summed over all ranks, as in data parallelism.

References:
    Jacobs et al., arXiv 2309.14509, section 3.1 (4 M / P for messages of M: three of them and one).
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from samestep.common.costs.data_parallel import bucketed, replicated, replicated_footprints
from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.saved_activations.both_passes import both_passes
from samestep.common.costs.sizes import symmetric
from samestep.common.ledger import Footprint, Ledger, Send
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.techniques.used import computed_twice
from samestep.common.workload.models.reached import num_trained
from samestep.common.workload.models.spec import Segment

if TYPE_CHECKING:
    from samestep.common.workload.models.transformer import TransformerSpec


def cp(run: Run, backend: str) -> Ledger:
    """Every rank exchanges positions for heads in each attention, and sums all gradients in one piece.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprint of all ranks, the exchanges of both passes, and the all-reduce.
    """
    size = num_trained(run.workload.model.params().values()) * run.item_bytes
    sums = bucketed(run, (size,), backend).sends
    return symmetric(run, cp_footprints(run), (*_exchanges(run, run.product_bytes), *sums), backend)


def context(run: Run, backend: str) -> Ledger:
    """The same between the replicas of one process, which keep as much as for whole examples, of which each has fewer.

    TensorFlow keeps what goes into an attention's products, and what comes out of it only where the next layer takes it. So a
    replica of N keeps 1/N of everything, the scores of its own heads included; the mask of all positions it keeps whole.

    Args:
        run: What is trained.
        backend: "memory".

    Returns:
        The footprint of all replicas, the exchanges of both passes, and the all-reduce.
    """
    mesh = Mesh((("data", run.mesh.size),))
    is_even = run.batch_size % (mesh.size * run.passes) == 0
    kept = activation_bytes(dataclasses.replace(run, mesh=mesh)) if is_even else None
    held = tuple(dataclasses.replace(each, activations_bytes=kept) for each in cp_footprints(run))
    sums = replicated(run, backend).sends
    return symmetric(run, held, (*_exchanges(run, run.item_bytes), *sums), backend)


def cp_footprints(run: Run) -> tuple[Footprint, ...]:
    """Predicts the memory of ranks that hold everything but the activations of the others' positions."""
    (held,) = replicated_footprints(run)
    return (dataclasses.replace(held, activations_bytes=_activation_bytes(run)),)


def _activation_bytes(run: Run) -> int | None:
    """Returns what a model of as many positions as a rank has keeps, and the outputs of attentions once more.

    On one device what an attention returns is the same memory as what the layer behind it takes; here it was sent in between.
    """
    if run.mesh.context == 1:
        return activation_bytes(run)
    model, workload = _local(run), run.workload
    kept = activation_bytes(dataclasses.replace(run, workload=dataclasses.replace(workload, model=model)))
    if kept is None:
        return None
    blocks = 1 if computed_twice(run) else model.layers
    return kept + blocks * run.examples_per_pass * model.context * model.width * run.product_bytes


def _local(run: Run) -> "TransformerSpec":
    """Returns the model as one rank sees it: of fewer positions."""
    model = cast("TransformerSpec", run.workload.model)  # other models are refused
    return dataclasses.replace(model, context=model.context // run.mesh.context)


def _exchanges(run: Run, item_bytes: int) -> Iterator[Send]:
    """Predicts the all-to-all exchanges of every pass, in order.

    Args:
        run: What is trained.
        item_bytes: The bytes of a number of what a projection returns.
    """
    if run.mesh.context == 1:
        return
    local = _local(run)
    of_tensor = run.examples_per_pass * local.context * local.width * item_bytes

    def within(phase: str, segment: Segment) -> list[Send]:
        if segment not in run.workload.model.segments()[1:-1]:
            return []
        sizes = (3 * of_tensor, of_tensor) if phase == "forward" else (of_tensor, 3 * of_tensor)
        return [Send(phase, "all_to_all", "context", run.mesh.context, size) for size in sizes]

    ahead, back = (functools.partial(within, phase) for phase in ("forward", "backward"))
    once = both_passes(run, run.workload.model.segments(), ahead, back, num_last=0)
    for _ in range(run.passes):
        yield from itertools.chain(*once)

"""Every device holds a part of the experts of each block, along the mesh axis `expert`, and all other parameters.

`common/axes/expert.py` says what mixtures of experts exchange.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from samestep.common.axes.used import held_params
from samestep.common.costs.saved_activations import kept_tf, kept_torch
from samestep.common.costs.saved_activations.activations import activation_bytes
from samestep.common.costs.shards import norms
from samestep.common.costs.sizes import ID_BYTES, holder_of, symmetric, with_agreement
from samestep.common.costs.within import step_within
from samestep.common.features.used import with_layers
from samestep.common.frameworks import conventions
from samestep.common.ledger import Footprint, Ledger, Send, in_order
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.techniques.used import computed_twice
from samestep.common.workload.models.parameters import trained
from samestep.common.workload.models.spec import num_positions
from samestep.common.workload.routing import AWAY, TAKEN


def ep(run: Run, backend: str) -> Ledger:
    """Predicts ranks that send tokens to experts in each block, and sum gradients in two pieces: those of experts and all others.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprint of all ranks, the exchanges of both passes, and the all-reduces, if all experts take the same
        number of tokens.
    """
    held = dataclasses.replace(_holder(run), activations_bytes=activation_bytes(run))
    return symmetric(run, (held,), _step(run, step_within(run)), backend)


def ep_as_routed(run: Run, backend: str, measures: Sequence[Mapping[str, float]]) -> Ledger:
    """Returns the ledger of a step in which it was measured how many tokens the router sent to each rank's experts.

    Args:
        run: What is trained.
        backend: As in `ep`.
        measures: The measures of each rank; see `common/workload/routing.py`.

    Returns:
        The footprint of each rank, the exchanges of the first one, and the bytes that all put on the wire.
    """
    expected, model, ranks = ep(run, backend), run.workload.model, run.mesh.parts("stacked")
    if ranks == 1:
        return expected
    sizes = model.facts.sizes
    taken = [[round(each[f"{TAKEN}/{block}"]) for block in range(sizes.layers)] for each in measures]
    alike = run.examples_per_pass * run.passes * num_positions(model) * sizes.top_k * sizes.layers
    moved = sizes.width * run.product_bytes * (6 if computed_twice(run) else 4)  # to an expert and back, both ways
    more = sum(each[AWAY] for each in measures) - run.num_devices * alike * (1 - 1 / ranks)
    sends, sent = in_order(_step(run, _routed(run, taken[0]))), expected.sent_bytes_per_step + moved * more
    (each,) = expected.footprints
    # With several passes, or blocks that are kept one at a time, it is not known which one takes most.
    if each.activations_bytes is None or run.passes > 1 or computed_twice(run):
        return Ledger(expected.footprints, sends, sent)
    of_token = kept_torch.at_expert(model) * run.product_bytes + 2 * ID_BYTES  # an id on the way there, and one back
    kept = (each.activations_bytes + (sum(own) - alike) * of_token for own in taken)
    return Ledger(tuple(dataclasses.replace(each, activations_bytes=own, count=1) for own in kept), sends, sent)


def expert(run: Run, backend: str) -> Ledger:
    """Predicts the same exchanges between the replicas of one process; all parts have room for all tokens of a replica.

    So experts keep as much as for all tokens of all replicas, with zeros in unused places. Four more ids are kept for each
    token: its place among those that are sent, both ways, and among those of the experts.

    Args:
        run: What is trained.
        backend: "memory".

    Returns:
        The footprint of all replicas, the exchanges of both passes, and the all-reduces.
    """
    model, ranks = run.workload.model, run.mesh.parts("stacked")
    kept = activation_bytes(dataclasses.replace(run, mesh=Mesh.of_replicas(run.mesh.size)))
    if kept is not None and ranks > 1:
        sizes = model.facts.sizes
        slots = run.examples_per_pass * num_positions(model) * sizes.top_k
        of_block = (ranks - 1) * slots * kept_tf.at_expert(model) * run.item_bytes
        of_block += kept_tf.PLACE_BYTES * (
            2 * (ranks + 1) * slots - sizes.routed_experts + sizes.routed_experts // ranks
        )
        kept += run.passes * sizes.layers * of_block
    held = dataclasses.replace(_holder(run), activations_bytes=kept)
    return symmetric(run, (held,), _step(run, step_within(run)) if run.num_devices > 1 else (), backend)


def _holder(run: Run) -> Footprint:
    return holder_of(run, held_params(run).values(), count=run.num_devices)


def _routed(run: Run, taken: Sequence[int]) -> Iterator[Send]:
    """Yields the exchanges of mixtures; of every two that move tokens, the second has the size of what a rank's experts take.

    Args:
        run: What is trained.
        taken: The number of tokens that they take in each block, which is assumed to be equal in all passes.
    """
    sizes, again = run.workload.model.facts.sizes, 2 if computed_twice(run) else 1
    seen = collections.Counter[str]()
    for send in step_within(run):
        if send.bytes != sizes.routed_experts * ID_BYTES:
            number, is_by_taken = divmod(seen[send.phase], 2)
            seen[send.phase] += 1
            turn, block = divmod(number if send.phase == "forward" else number // again, sizes.layers)
            if is_by_taken:
                of_block = taken[block if send.phase == "forward" else sizes.layers - 1 - block]
                tokens = of_block * (turn + 1) // run.passes - of_block * turn // run.passes
                send = dataclasses.replace(send, bytes=tokens * sizes.width * run.product_bytes)
        yield send


def _step(run: Run, within: Iterable[Send]) -> list[Send]:
    """Adds the sums of gradients to the exchanges of mixtures, and what layers and techniques exchange."""
    mesh, learning = run.mesh, trained(held_params(run))
    shared, of_experts = (
        sum(param.size for param in learning.values() if bool(param.stacked) == is_expert)
        for is_expert in (False, True)
    )
    sends = [*within, Send("backward", "all_reduce", mesh.only_axis, mesh.size, shared * run.item_bytes)]
    if replicas := mesh.expert_replica_axes:
        sends.append(Send("backward", "all_reduce", *mesh.group_along(replicas), of_experts * run.item_bytes))
    if run.techniques.need_norm:
        each = [*norms(run, learning)]
        sends += each[:1] if conventions(run.framework).sums_norms_at_once else each
    return with_agreement(run, with_layers(run, sends))

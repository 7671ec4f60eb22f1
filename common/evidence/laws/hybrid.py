"""Pipelines whose stages are cut inside and replicated or sharded: each axis costs what it costs alone, on less.

Memory of a rank: its stages, of which 1/T along `tensor` where the split table allows, of which 1/S along `shard`.
Exchanges: micro-batches along `pipe`, of each pipeline's part of the batch; all-reduces along `tensor` for each of
them; once a step the stage gathered and its gradients reduce-scattered along `shard`, or all-reduced along `data`. (The
few bytes for the norm of a clipped gradient are left out.)
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Sequence

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES, MESSAGE_BYTES
from common.evidence.laws.pipelined import holders_of, parameters_in
from common.evidence.laws.tensor_pairs import Collective, collectives, sent_bytes
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import Cut, ModelSpec, even_split_table, stages
from common.workload.table import Workload


@dataclasses.dataclass(frozen=True)
class _Held:
    """The elements of a stage that one rank holds, the largest part of them that any holds, and all of them gathered."""

    own: int
    shard: int
    gathered: int


def three_dimensional(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Ranks in the order of the mesh pipe x data (or shard) x tensor.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "gloo" or "nccl".
    """
    mesh, item = Mesh.parse(config.mesh or "pipe=1"), ITEM_BYTES[config.dtype]
    replicas, parts, shards = mesh.axis("data") * mesh.axis("shard"), mesh.axis("tensor"), mesh.axis("shard")
    holders = holders_of(config)
    grouped = stages(workload.model.cuts(), len(holders))
    slots = len(workload.optimizer(config).slots)
    footprints = []
    for pipe, outer, _ in itertools.product(range(mesh.axis("pipe")), range(replicas), range(parts)):
        own = [cuts for cuts, holder in zip(grouped, holders, strict=True) if holder == pipe]
        held = [_held(workload.model, cuts, parts, shards, outer % shards) for cuts in own]
        params = sum(each.own for each in held) * item
        # Sharded stages arrive in a buffer and are copied out of it; replicated ones are copied, too (torch 2.13).
        copies = 2 if shards > 1 else 1 if replicas > 1 else 0
        peak = params + copies * sum(each.gathered for each in held) * item
        footprints.append(Footprint("each", params, peak, params, slots * params, "law"))

    sent = 0.0
    exchanges: tuple[Exchange, ...] = ()
    for pipe in range(mesh.axis("pipe")):
        taken = _taken(workload, config, mesh, pipe)
        for ranks, each in taken:
            send = each.elements * item + MESSAGE_BYTES[backend]
            sent += send if each.name == "send" else sent_bytes(each, ranks, item, backend)
        if pipe == 0:
            exchanges = _summed([each for _, each in taken], item)
    return Ledger(tuple(footprints), exchanges, sent * replicas * parts)


def _held(model: ModelSpec, cuts: Sequence[Cut], parts: int, shards: int, shard: int) -> _Held:
    own = largest = 0
    split = even_split_table(model, parts)
    for name in parameters_in(model, cuts):
        shape = list(model.params()[name].shape)
        if name in split:
            shape[split[name]] //= parts
        first = len(shape) - 1 if name.endswith("/kernel") else 0  # torch's first dimension, along which it shards
        rows, rest = shape[first], math.prod(shape) // shape[first]
        each = -(-rows // shards)
        own += rest * max(0, min(each, rows - shard * each))
        largest += rest * each
    return _Held(own, largest, largest * shards)


def _taken(workload: Workload, config: RunConfig, mesh: Mesh, pipe: int) -> list[tuple[int, Collective]]:
    """Everything a rank takes part in during a step, with the number of ranks that do."""
    model, holders, parts = workload.model, holders_of(config), mesh.axis("tensor")
    passes = config.techniques.micro_batches
    replicas = mesh.axis("data") * mesh.axis("shard")
    microbatches = int(config.options["microbatches"] or 1) * passes
    rows = (config.batch_size or 0) // replicas // microbatches
    grouped = stages(model.cuts(), len(holders))
    taken: list[tuple[int, Collective]] = []
    for cuts, (here, there) in zip(grouped, itertools.pairwise(holders), strict=False):
        if here != there and pipe in (here, there):
            elements = rows * math.prod(cuts[-1].outputs) // (parts if _in_parts(model, cuts[-1], parts) else 1)
            taken += [(2, Collective("send", elements))] * microbatches
    for cuts in (cuts for cuts, holder in zip(grouped, holders, strict=True) if holder == pipe):
        if parts > 1:
            taken += [(parts, each) for each in collectives(model, parts, rows, cuts=cuts)] * microbatches
        held = _held(model, cuts, parts, mesh.axis("shard"), 0)
        if mesh.axis("shard") > 1:
            taken += [(mesh.axis("shard"), Collective("all_gather", held.shard))] * passes
            taken += [(mesh.axis("shard"), Collective("reduce_scatter", held.gathered))] * passes
        elif mesh.axis("data") > 1:
            taken += [(mesh.axis("data"), Collective("all_reduce", held.own))] * passes
    return taken


def _in_parts(model: ModelSpec, cut: Cut, parts: int) -> bool:
    """Whether a piece hands on what a layer cut by column has left in parts."""
    split = even_split_table(model, parts)
    kernels = [name for name in parameters_in(model, [cut]) if name.endswith("/kernel")]
    return bool(kernels) and split.get(kernels[-1]) == 1


def _summed(taken: Sequence[Collective], item: int) -> tuple[Exchange, ...]:
    counts = collections.Counter(each.name for each in taken)
    return tuple(
        Exchange(name, count, sum(each.elements for each in taken if each.name == name) * item)
        for name, count in sorted(counts.items())
    )

"""Pipelines whose stages are split inside and replicated or sharded: each axis costs what it costs alone, on less.

Memory of a rank: its stages, of which 1/T along `tensor` where the split table allows, of which 1/S along `shard`.
Exchanges: micro-batches along `pipe`, of each pipeline's part of the batch; all-reduces along `tensor` for each of
them; once a step the stage gathered and its gradients reduce-scattered along `shard`, or all-reduced along `data`. (The
few bytes for the norm of a clipped gradient are left out.)
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from samestep.common.evidence.costs.sizes import holder, shard_elements
from samestep.common.evidence.costs.tensor import partial_sums
from samestep.common.ledger import Footprint, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Segment, parameters_of
from samestep.common.workload.pipeline import SCHEDULES, group_segments
from samestep.common.workload.split import even_split_table


@dataclasses.dataclass(frozen=True)
class _Stage:
    """A stage of the pipeline.

    Attributes:
        pipe: The place along `pipe` that holds it.
        segments: What it consists of.
        shards: The elements of each shard that a rank holds along `shard`; to the first the others are padded.
    """

    pipe: int
    segments: tuple[Segment, ...]
    shards: tuple[int, ...]


def hybrid(run: Run, backend: str) -> Ledger:
    """Predicts each rank, in the order of the mesh pipe x data (or shard) x tensor.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and what rank 0 exchanges.
    """
    mesh, stages = run.mesh, _stages(run)
    pipes, replicas, parts = mesh.axis("pipe"), mesh.axis("data") * mesh.axis("shard"), mesh.axis("tensor")
    footprints = [
        _footprint(run, [stage for stage in stages if stage.pipe == pipe], replica)
        for pipe, replica, _ in itertools.product(range(pipes), range(replicas), range(parts))
    ]
    return Ledger(tuple(footprints), (), 0.0)


def _stages(run: Run) -> list[_Stage]:
    model, parts, shards = run.workload.model, run.mesh.axis("tensor"), run.mesh.axis("shard")
    split = even_split_table(model, parts)
    ranks = SCHEDULES[run.options.schedule].stage_ranks(run.mesh.axis("pipe"))
    stages = []
    for rank, segments in zip(ranks, group_segments(model.segments(), len(ranks)), strict=True):
        held = [
            ([size // (parts if split.get(name) == dim else 1) for dim, size in enumerate(param.shape)], param.role)
            for name, param in parameters_of(model, *segments).items()
        ]
        elements = (sum(shard_elements(*each, shards, shard) for each in held) for shard in range(shards))
        stages.append(_Stage(rank, segments, tuple(elements)))
    return stages


def _footprint(run: Run, stages: Sequence[_Stage], replica: int) -> Footprint:
    shards = run.mesh.axis("shard")
    held = holder(run, sum(stage.shards[replica % shards] for stage in stages))
    gathered = sum(shards * stage.shards[0] for stage in stages) * run.item_bytes
    # Sharded stages arrive in a buffer and are copied out of it; replicated ones are copied as well (torch 2.13).
    copies = 2 if shards > 1 else 1 if run.mesh.axis("data") > 1 else 0
    return dataclasses.replace(held, params_peak_bytes=held.params_bytes + copies * gathered)


def _outputs_are_split(model: ModelSpec, segment: Segment, parts: int) -> bool:
    """Whether a segment hands on what a layer split by column has left in parts."""
    kernels = [name for name, param in parameters_of(model, segment).items() if param.role == "kernel"]
    return bool(kernels) and even_split_table(model, parts).get(kernels[-1]) == 1

"""Pipelines whose stages are split inside and replicated or sharded: each axis costs what it costs alone, on less.

Memory of a rank: its stages, of which 1/T along `tensor` where the split table allows, of which 1/S along `shard`.
Exchanges: micro-batches along `pipe`, of each pipeline's part of the batch; all-reduces along `tensor` for each of
them; once a step the stage gathered and its gradients reduce-scattered along `shard`, or all-reduced along `data`. (The
few bytes for the norm of a clipped gradient are left out.)
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from samestep.common.evidence.costs.activations import pipeline_activation_bytes
from samestep.common.evidence.costs.sizes import holder, merged, sent_bytes, shard_elements
from samestep.common.evidence.costs.tensor import partial_sums
from samestep.common.ledger import Exchange, Footprint, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Role, Segment, parameters_of
from samestep.common.workload.pipeline import SCHEDULES, group_segments
from samestep.common.workload.split import even_split_table


@dataclasses.dataclass(frozen=True)
class _Stage:
    """A stage of the pipeline.

    Attributes:
        pipe: The place along `pipe` that holds it.
        segments: What it consists of.
        held: Shape and role of each parameter, of which a part along `tensor`.
        padded: The elements of the first shard along `shard`; the others are padded to as many.
    """

    pipe: int
    segments: tuple[Segment, ...]
    held: Sequence[tuple[Sequence[int], Role]]
    padded: int


def hybrid(run: Run, backend: str) -> Ledger:
    """Predicts each rank, in the order of the mesh pipe x data (or shard) x tensor.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        The footprints of all ranks, and what rank 0 exchanges.
    """
    mesh, stages = run.mesh, _stages(run)
    pipes, replicas, parts = mesh.axis("pipe"), mesh.axis("data") * mesh.axis("shard"), mesh.axis("tensor")
    schedule, microbatches = run.options.schedule, run.options.microbatches
    footprints = [
        dataclasses.replace(each, activations_bytes=pipeline_activation_bytes(run, schedule, microbatches, pipe))
        for pipe in range(pipes)
        for each in _footprints(run, [stage for stage in stages if stage.pipe == pipe])
    ]
    taken = [_taken(run, stages, pipe) for pipe in range(pipes)]
    sent = sum((sent_bytes(each, ranks, backend) for ranks, each in itertools.chain(*taken)), 0.0)
    exchanges = merged(sorted((each for _, each in taken[0]), key=lambda each: each.name))
    return Ledger(tuple(footprints), exchanges, sent * replicas * parts)


def _stages(run: Run) -> list[_Stage]:
    model, parts, shards = run.workload.model, run.mesh.axis("tensor"), run.mesh.axis("shard")
    split = even_split_table(model, parts)
    ranks = SCHEDULES[run.options.schedule].stage_ranks(run.mesh.axis("pipe"))
    stages = []
    for rank, segments in zip(ranks, group_segments(model.segments(), len(ranks)), strict=True):
        held: list[tuple[Sequence[int], Role]] = [
            ([size // (parts if split.get(name) == dim else 1) for dim, size in enumerate(param.shape)], param.role)
            for name, param in parameters_of(model, *segments).items()
        ]
        stages.append(_Stage(rank, segments, held, shard_elements(held, shards)[0][0]))
    return stages


def _footprints(run: Run, stages: Sequence[_Stage]) -> Iterator[Footprint]:
    """The ranks at one place along `pipe`: all shards, each with its parts along `tensor`; or as many replicas."""
    shards, replicas = run.mesh.axis("shard"), run.mesh.axis("data")
    gathered = sum(shards * stage.padded for stage in stages) * run.item_bytes
    # Sharded stages arrive in a buffer and are copied out of it; replicated ones are copied as well (torch 2.13).
    copies = 2 if shards > 1 else 1 if replicas > 1 else 0
    for elements, count in shard_elements(itertools.chain(*(stage.held for stage in stages)), shards):
        held = holder(run, elements, count=count * replicas * run.mesh.axis("tensor"))
        yield dataclasses.replace(held, params_peak_bytes=held.params_bytes + copies * gathered)


def _taken(run: Run, stages: Sequence[_Stage], pipe: int) -> list[tuple[int, Exchange]]:
    """Everything that a rank takes part in during a step, one by one, with the number of ranks that do."""
    model, mesh, item, passes = run.workload.model, run.mesh, run.item_bytes, run.accumulation_steps
    data, shards, parts = mesh.axis("data"), mesh.axis("shard"), mesh.axis("tensor")
    microbatches = run.options.microbatches * passes
    rows = run.batch_size // (data * shards) // microbatches
    taken: list[tuple[int, Exchange]] = []
    for here, there in itertools.pairwise(stages):
        if here.pipe != there.pipe and pipe in (here.pipe, there.pipe):
            split = parts if _outputs_are_split(model, here.segments[-1], parts) else 1
            size = rows * math.prod(here.segments[-1].outputs) // split * item
            taken += [(2, Exchange("send", 1, size))] * microbatches
    for stage in (stage for stage in stages if stage.pipe == pipe):
        if parts > 1:
            sums = partial_sums(model, parts, stage.segments).every
            taken += [(parts, Exchange("all_reduce", 1, each * rows * item)) for each in sums] * microbatches
        size = stage.padded * item
        if shards > 1:
            taken += [(shards, Exchange("all_gather", 1, size))] * passes
            taken += [(shards, Exchange("reduce_scatter", 1, shards * size))] * passes
        elif data > 1:
            taken += [(data, Exchange("all_reduce", 1, size))] * passes
    return taken


def _outputs_are_split(model: ModelSpec, segment: Segment, parts: int) -> bool:
    """Whether a segment hands on what a layer split by column has left in parts."""
    kernels = [name for name, param in parameters_of(model, segment).items() if param.role == "kernel"]
    return bool(kernels) and even_split_table(model, parts).get(kernels[-1]) == 1

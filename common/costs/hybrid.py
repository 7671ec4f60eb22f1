"""Pipelines whose stages are split inside and replicated or sharded: each axis costs what it costs alone, on less.

Memory of a rank: its stages, of which 1/T along `tensor` where the split table allows, of which 1/S along `shard`.
Exchanges: micro-batches along `pipe`, of each pipeline's part of the batch; all-reduces along `tensor` for each of
them; once a step the stage gathered and its gradients reduce-scattered along `shard`, or all-reduced along `data`.
"""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from samestep.common.costs.pipeline import boundary_sends, carried, count_tensors, passes_of, tied_sends
from samestep.common.costs.saved_activations.activations import pipeline_activation_bytes
from samestep.common.costs.shards import shard_elements, sharded_holders
from samestep.common.costs.sizes import agreement, reached, sent_bytes
from samestep.common.costs.tensor import sums
from samestep.common.ledger import PHASES, Footprint, Ledger, Send, in_order
from samestep.common.strategy import Run
from samestep.common.workload.models.reached import trained
from samestep.common.workload.models.spec import ModelSpec, Role, Segment, parameters_of, tied_segments
from samestep.common.workload.passes import Pass
from samestep.common.workload.pipeline import SCHEDULES, group_segments
from samestep.common.workload.split import even_split_table


@dataclasses.dataclass(frozen=True)
class _Stage:
    """A stage of the pipeline.

    Attributes:
        pipe: The place along `pipe` that holds it.
        segments: What it consists of.
        held: Shape and role of each parameter, of which a part along `tensor`.
        trained: Those that are not frozen.
        padded: The elements of the first shard along `shard`; the others are padded to as many.
        padded_trained: Likewise, of those that are not frozen.
    """

    pipe: int
    segments: tuple[Segment, ...]
    held: Sequence[tuple[Sequence[int], Role]]
    trained: Sequence[tuple[Sequence[int], Role]]
    padded: int
    padded_trained: int


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
    sizes = [_handed_on(run, stage.segments[-1]) for stage in stages]
    cut = [stage.segments for stage in stages]
    carries, pipes_of = carried(run, cut), [stage.pipe for stage in stages]
    messages = boundary_sends(sizes, count_tensors(cut), pipes_of, replicas * parts, carries)
    halves = list(
        tied_sends(run, [s.segments for s in stages], [s.pipe for s in stages], replicas * parts, _parts(run))
    )
    of_rank = [
        [
            *_sends(run, stages, messages, pipe),
            *(send for rank, send in halves if rank == pipe),
            *agreement(run),
            *(_norms(run, [stage for stage in stages if stage.pipe == pipe]) if run.techniques.need_norm else ()),
        ]
        for pipe in range(pipes)
    ]
    sent = sum((sent_bytes(send, backend, run.item_bytes) for sends in of_rank for send in sends), 0.0)
    return Ledger(hybrid_footprints(run), in_order(of_rank[0]), sent * replicas * parts)


def hybrid_footprints(run: Run) -> tuple[Footprint, ...]:
    """Predicts the memory of each rank; of many micro-batches it takes a fraction of the time of the whole ledger."""
    stages, schedule, microbatches = _stages(run), run.options.schedule, run.options.microbatches
    return tuple(
        dataclasses.replace(each, activations_bytes=kept)
        for pipe, kept in enumerate(pipeline_activation_bytes(run, schedule, microbatches))
        for each in _footprints(run, [stage for stage in stages if stage.pipe == pipe])
    )


def _stages(run: Run) -> Sequence[_Stage]:
    mesh = run.mesh
    return _cut(run.workload.model, run.options.schedule, mesh.axis("pipe"), mesh.axis("tensor"), mesh.axis("shard"))


@functools.lru_cache(maxsize=8)  # it does not depend on the batch, of which a search tries many
def _cut(model: ModelSpec, schedule: str, pipes: int, parts: int, shards: int) -> Sequence[_Stage]:
    split = even_split_table(model, parts)
    ranks = SCHEDULES[schedule].stage_ranks(pipes)
    stages = []
    for rank, segments in zip(ranks, group_segments(model.segments(), len(ranks)), strict=True):
        every = parameters_of(model, *segments)
        held: dict[str, tuple[Sequence[int], Role]] = {
            name: (
                [size // (parts if split.get(name) == dim else 1) for dim, size in enumerate(param.shape)],
                param.role,
            )
            for name, param in every.items()
        }
        learning = [held[name] for name in trained(every)]
        padded, padded_trained = (shard_elements(each, shards)[0][0] for each in (held.values(), learning))
        stages.append(_Stage(rank, segments, [*held.values()], learning, padded, padded_trained))
    return stages


def _footprints(run: Run, stages: Sequence[_Stage]) -> Iterator[Footprint]:
    """The ranks at one place along `pipe`: all shards, each with its parts along `tensor`; or as many replicas."""
    shards, replicas = run.mesh.axis("shard"), run.mesh.axis("data")
    gathered = sum(shards * stage.padded for stage in stages) * (run.product_bytes if shards > 1 else run.item_bytes)
    # Sharded stages arrive in a buffer and are copied out of it; replicated ones are copied as well (torch 2.13).
    copies = 2 if shards > 1 else 1 if replicas > 1 else 0
    every, learning = (
        shard_elements(itertools.chain(*each), shards)
        for each in ((stage.held for stage in stages), (stage.trained for stage in stages))
    )
    for held in sharded_holders(run, every, learning, replicas * run.mesh.axis("tensor")):
        yield dataclasses.replace(held, params_peak_bytes=held.params_bytes + copies * gathered)


def _parts(run: Run) -> int:
    """Into how many parts the table of a tied head is cut."""
    split = even_split_table(run.workload.model, run.mesh.axis("tensor"))
    parts = run.mesh.axis("tensor") if any(name in split for name in tied_segments(run.workload.model)) else 1
    return parts * run.mesh.axis("shard")


def _rows(run: Run) -> int:
    """The examples of a micro-batch."""
    replicas = run.mesh.axis("data") * run.mesh.axis("shard")
    return run.batch_size // (replicas * run.options.microbatches * run.accumulation_steps)


def _sends(run: Run, stages: Sequence[_Stage], messages: Mapping[Pass, Send], pipe: int) -> Iterator[Send]:
    """Predicts everything that a rank takes part in during a step; `messages` are those at the ends of passes."""
    mesh, microbatches = run.mesh, run.options.microbatches
    data, shards, parts = mesh.axis("data"), mesh.axis("shard"), mesh.axis("tensor")
    within = {
        (phase, number): sends
        for number, stage in enumerate(stages)
        if parts > 1 and stage.pipe == pipe
        for phase, sends in zip(PHASES, sums(run, _rows(run), stage.segments), strict=False)
    }
    passes = passes_of(pipe, run.options.schedule, mesh.axis("pipe"), microbatches)
    for _ in range(run.accumulation_steps):
        left = collections.Counter(passes)
        if shards > 1:  # torch 2.13 gathers all stages of a rank ahead of the first pass
            for number in dict.fromkeys(number for _, number in passes):
                yield Send("forward", "all_gather", "shard", shards, stages[number].padded * run.product_bytes)
        for each in passes:
            phase, number = each
            size = stages[number].padded_trained * run.item_bytes
            yield from within.get(each, ())
            left[each] -= 1
            if not size:
                pass  # all of it is frozen
            elif phase == "backward" and not left[each] and shards > 1:
                yield Send("backward", "reduce_scatter", "shard", shards, shards * size)
            elif phase == "backward" and not left[each] and data > 1:
                yield Send("backward", "all_reduce", "data", data, size)
            if each in messages:
                yield messages[each]
    held = sum(len(stage.trained) for stage in stages if stage.pipe == pipe)
    axis = "shard" if shards > 1 else "data"
    yield from reached(run, held, axis, mesh.axis(axis))


def _norms(run: Run, stages: Sequence[_Stage]) -> Iterator[Send]:
    """Predicts the norm of a clipped gradient: that of each parameter over the ranks that share it, then that of all."""
    model, mesh = run.workload.model, run.mesh
    split = even_split_table(model, mesh.axis("tensor"))
    for name in trained(parameters_of(model, *(segment for stage in stages for segment in stage.segments))):
        if mesh.axis("shard") > 1:
            yield Send("update", "all_reduce", "shard", mesh.axis("shard"), run.item_bytes)
        if mesh.axis("tensor") > 1 and name in split:
            yield Send("update", "all_reduce", "tensor", mesh.axis("tensor"), run.item_bytes)
    yield Send("update", "all_reduce", mesh.only_axis, mesh.size, run.item_bytes)


def _handed_on(run: Run, last: Segment) -> int:
    """The bytes that a rank hands on of a micro-batch: of what a layer split by column has left in parts, its part."""
    model, parts = run.workload.model, run.mesh.axis("tensor")
    kernels = [name for name, param in parameters_of(model, last).items() if param.role == "kernel"]
    is_split = bool(kernels) and even_split_table(model, parts).get(kernels[-1]) == 1
    return _rows(run) * math.prod(last.outputs) // (parts if is_split else 1) * run.item_bytes

"""Models split between their layers, whose stages may be split inside, replicated or sharded: mp, pp and hybrid.

Each axis costs what it costs alone, on the part of the model and batch that the others leave. An axis of one device costs
nothing, so pp is hybrid without the others. A rank holds its stages, 1/T of each along `tensor` where the split table allows
it, and 1/S of that along `shard`.
It exchanges micro-batches of its pipeline's part of the batch along `pipe`, with all-reduces along `tensor` for each of them.
Once a step, the stage is gathered and its gradients are reduce-scattered along `shard`, or all-reduced along `data`.
"""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from samestep.common.axes.used import all_held, as_left, dividing, parts_of_outputs, segments_left
from samestep.common.costs.optimizer_state import broadcasts_of, owned_by_replicas, state_bytes
from samestep.common.costs.saved_activations.activations import pipeline_activation_bytes
from samestep.common.costs.shards import (
    ShardPart,
    copied_bytes,
    gathers,
    is_sharded,
    norms,
    part_of,
    reductions,
    sharded_holders,
    summed_alone,
)
from samestep.common.costs.sizes import agreement, reached, sent_bytes
from samestep.common.costs.stage_sends import boundary_sends, passes_of, shared_sends
from samestep.common.costs.within import sends_within
from samestep.common.ledger import PHASES, Footprint, Ledger, Send, in_order
from samestep.common.mesh import Mesh
from samestep.common.request import StrategyOptions
from samestep.common.strategy import Run
from samestep.common.workload.models.parameters import kinds_of_segments, trained
from samestep.common.workload.models.spec import ModelSpec, Param, Segment, parameters_of, shared_parameters
from samestep.common.workload.passes import Pass
from samestep.common.workload.pipeline_schedule import SCHEDULES, group_segments


@dataclasses.dataclass(frozen=True)
class _WholeBatch(StrategyOptions):
    """The options of a pipeline that takes one batch at a time."""

    schedule: str = "gpipe"
    microbatches: int = 1


@dataclasses.dataclass(frozen=True)
class _Stage:
    """A stage of the pipeline.

    Attributes:
        pipe: The place along `pipe` that holds it.
        segments: The segments of the stage.
        held: The rank's part of each parameter along `tensor` and `expert`.
        trained: The same, without frozen parameters.
        part: The rank's part of `held` along `shard`.
        part_trained: The rank's part of `trained` along `shard`.
    """

    pipe: int
    segments: tuple[Segment, ...]
    held: Mapping[str, Param]
    trained: Mapping[str, Param]
    part: ShardPart
    part_trained: ShardPart


def hybrid(run: Run, backend: str, place: int = 0) -> Ledger:
    """Predicts each rank, in the order of the mesh, whose first axis is `pipe`.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".
        place: The place along `pipe`.

    Returns:
        The footprints of all ranks, and what the first rank at the place exchanges.
    """
    of_rank, apart = _sends_along_pipe(run), run.mesh.size // run.mesh.pipe
    sent = sum((sent_bytes(send, backend, run.item_bytes) for sends in of_rank for send in sends), 0.0)
    return Ledger(hybrid_footprints(run), in_order(of_rank[place]), sent * apart)


def _sends_along_pipe(run: Run) -> list[list[Send]]:
    """Returns what the first rank at each place along `pipe` exchanges."""
    stages, pipes, apart = _stages(run), run.mesh.pipe, run.mesh.size // run.mesh.pipe
    cut, pipes_of = tuple(stage.segments for stage in stages), [stage.pipe for stage in stages]
    messages = boundary_sends(run, cut, pipes_of, apart, [_handed_on(run, segments[-1]) for segments in cut])
    halves = list(shared_sends(run, cut, pipes_of, apart, _parts(run)))
    found = []
    for pipe in range(pipes):
        own = [stage for stage in stages if stage.pipe == pipe]
        sends = [
            *_sends(run, stages, messages, pipe),
            *(send for rank, send in halves if rank == pipe),
            *agreement(run),
        ]
        sends += _norms(run, own) if run.techniques.need_norm else ()
        owners = owned_by_replicas(run, _together([stage.trained for stage in own]).values())
        found.append([*sends, *broadcasts_of(run, owners, *run.mesh.group_along(run.mesh.replica_axes))])
    return found


def pp(run: Run, backend: str, place: int = 0) -> Ledger:
    """Predicts each rank of a mesh that has the axis `pipe` alone; the arguments are those of `hybrid`."""
    return hybrid(run, backend, place)


def mp(run: Run, backend: str, place: int = 0) -> Ledger:
    """Predicts one stage per rank and one batch at a time: a pipeline with a single micro-batch per accumulation step.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".
        place: The place along `pipe`.

    Returns:
        One footprint per rank, and the sends of the rank at the place.
    """
    return hybrid(dataclasses.replace(run, options=_WholeBatch()), backend, place)


def mp_sends(run: Run) -> list[list[Send]]:
    """Predicts the sends of each rank, in no particular order; this takes a fraction of the time of one ledger for each rank."""
    return _sends_along_pipe(dataclasses.replace(run, options=_WholeBatch()))


def hybrid_footprints(run: Run, with_activations: bool = True) -> tuple[Footprint, ...]:
    """Predicts the memory of each rank; with many micro-batches this takes a fraction of the time of the whole ledger.

    Args:
        run: What is trained.
        with_activations: Whether to add up the saved activations of the stages.
    """
    stages, schedule, microbatches = _stages(run), run.asked.schedule, run.asked.microbatches
    kinds, alike, found = kinds_of_segments(run.workload.model), dict[object, list[Footprint]](), list[Footprint]()
    places = [[stage for stage in stages if stage.pipe == pipe] for pipe in range(run.mesh.pipe)]
    kept = pipeline_activation_bytes(run, schedule, microbatches) if with_activations else [None] * len(places)
    for own, activations in zip(places, kept, strict=True):
        if (consist_of := tuple(tuple(kinds[part.name] for part in stage.segments) for stage in own)) not in alike:
            alike[consist_of] = list(_footprints(run, own))
        found += [dataclasses.replace(each, activations_bytes=activations) for each in alike[consist_of]]
    return tuple(found)


def _stages(run: Run) -> Sequence[_Stage]:
    split = run.mesh.cutting("layers", "features", "stacked", "parameters")  # replicas and batches make no difference
    return _cut(run.workload.model, run.asked.schedule, split, run.mesh.parts("layers"))


@functools.lru_cache(maxsize=64)  # it does not depend on the batch, and a search tries many batch sizes
def _cut(model: ModelSpec, schedule: str, mesh: Mesh, pipes: int) -> Sequence[_Stage]:
    if is_sharded(mesh):
        whole = _cut(model, schedule, mesh.cutting("layers", "features", "stacked"), pipes)
        is_all = all(not param.frozen for param in model.params().values())
        own = [part_of(stage.held, mesh) for stage in whole]
        learning = own if is_all else [part_of(stage.trained, mesh) for stage in whole]
        both = zip(whole, own, learning, strict=True)
        return [dataclasses.replace(stage, part=part, part_trained=trains) for stage, part, trains in both]
    ranks, whole_held = SCHEDULES[schedule].stage_ranks(pipes), all_held(model, mesh.cutting("features", "stacked"))
    stages = []
    for rank, segments in zip(ranks, group_segments(model.segments(), len(ranks)), strict=True):
        every = parameters_of(model, *segments)
        held = {name: whole_held[name] for name in every}
        learning = {name: held[name] for name in trained(every)}
        part, part_trained = (part_of(each, mesh) for each in (held, learning))
        stages.append(_Stage(rank, segments, held, learning, part, part_trained))
    return stages


def _footprints(run: Run, stages: Sequence[_Stage]) -> Iterator[Footprint]:
    """Yields the footprints of the ranks at one place along `pipe`: all shards or replicas, each with parts along `tensor`."""
    copied = copied_bytes(run, [stage.part for stage in stages])
    every, learning = (_together(each) for each in ([s.held for s in stages], [s.trained for s in stages]))
    for held in sharded_holders(run, every.values(), learning.values()):
        held = dataclasses.replace(held, params_peak_bytes=held.params_bytes + copied)
        owners = owned_by_replicas(run, learning.values())
        if not owners and not run.optimizer.is_elementwise:  # they differ in their state, and are whole then
            owners = [([run.workload.model.params()[name] for name in learning], 1)]
        alike = held.count // (sum(count for _, count in owners) or 1)  # along `tensor`
        for own, count in owners:
            yield dataclasses.replace(held, optimizer_bytes=state_bytes(run, own), count=count * alike)
        if not owners:
            yield held


def _together(of_stages: Sequence[Mapping[str, Param]]) -> Mapping[str, Param]:
    """Returns the parameters of a rank's stages, the last stage's first; one that is tied between two stages occurs once."""
    return {name: param for params in reversed(of_stages) for name, param in params.items()}


def _parts(run: Run) -> int:
    """Returns how many parts the table of a tied head is cut into; all parts have the same number of rows."""
    model, mesh = run.workload.model, run.mesh
    axes = {axis for name in shared_parameters(model) for axis in dividing(model, mesh, name)}
    return math.prod(map(mesh.axis, axes))


def _rows(run: Run) -> int:
    """Returns the examples of a micro-batch."""
    replicas = run.mesh.replicas
    return run.batch_size // (replicas * run.asked.microbatches * run.passes)


def _sends(run: Run, stages: Sequence[_Stage], messages: Mapping[Pass, Send], pipe: int) -> Iterator[Send]:
    """Predicts everything that a rank takes part in during a step; `messages` are those at the ends of passes."""
    mesh, microbatches = run.mesh, run.asked.microbatches
    within = {
        (phase, number): [*itertools.chain(*sends)]
        for number, stage in enumerate(stages)
        if stage.pipe == pipe
        for phase, sends in zip(PHASES, sends_within(run, _rows(run), stage.segments), strict=False)
    }
    schedule = SCHEDULES[run.asked.schedule]
    passes, last = passes_of(pipe, run.asked.schedule, mesh.pipe, microbatches), schedule.last_phase
    for _ in range(run.passes):
        left = collections.Counter(passes)
        for number in dict.fromkeys(number for _, number in passes):  # torch 2.13 gathers them ahead of the first pass
            yield from gathers(run, "forward", stages[number].part)
        for each in passes:
            phase, number = each
            yield from within.get(each, ())
            left[each] -= 1
            if each in messages:
                yield messages[each]
            if phase == last and not left[each]:
                part = stages[number].part_trained
                yield from reductions(run, part if is_sharded(mesh) else part._replace(of_experts=0))
    yield from summed_alone(run, sum(stage.part_trained.of_experts for stage in stages if stage.pipe == pipe))
    held = sum(len(stage.trained) for stage in stages if stage.pipe == pipe)
    yield from reached(run, held, *mesh.group_along(mesh.batch_axes))


def _norms(run: Run, stages: Sequence[_Stage]) -> Iterator[Send]:
    """Predicts the sums for the norm of a clipped gradient: for each parameter over the ranks that share it, then over all."""
    segments = (segment for stage in stages for segment in stage.segments)
    yield from norms(run, trained(parameters_of(run.workload.model, *segments)))
    yield Send("update", "all_reduce", run.mesh.only_axis, run.mesh.size, run.item_bytes)


def _handed_on(run: Run, last: Segment) -> int:
    """Returns the bytes of a micro-batch that a rank hands on; if a layer leaves its outputs in parts, only the rank's part."""
    left = as_left(run)
    (last,) = segments_left(left, [last])
    return _rows(run) * math.prod(last.outputs) // parts_of_outputs(left, last) * run.item_bytes

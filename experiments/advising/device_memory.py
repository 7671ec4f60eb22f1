"""The memory that a device needs under a layout, for searches over thousands: terms without micro-batches are added up once.

Besides activations, it is what the footprints of the strategy say. For compositions that no strategy runs it is added up here,
from the parameters that a rank has along `pipe`, `tensor` and `expert`:

    zero1    all, with gradients; optimizer state sharded over the ranks that have the same ones
    ep       experts sharded along `shard`, everything else along `expert` as well; a segment is whole while it computes

References:
    Rajbhandari et al., arXiv 1910.02054, section 5; Zhao et al., arXiv 2304.11277, section 3.2 (FSDP).
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from samestep.common.axes.used import held_of, splits_between, used
from samestep.common.costs.footprints import FOOTPRINTS
from samestep.common.costs.optimizer_state import optimizer_bytes, state_bytes
from samestep.common.costs.saved_activations.activations import kept_by_stage
from samestep.common.costs.saved_activations.peak import KeptByStage, in_flight, peak_bytes
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.workload.models.parameters import num_trained
from samestep.common.workload.models.spec import ModelSpec, num_params, parameters_of
from samestep.common.workload.pipeline_schedule import SCHEDULES, stages_of_ranks
from samestep.experiments.advising.candidate_meshes import MEGATRON, RankedStrategy
from samestep.experiments.advising.prediction import needed_bytes

_PLAIN = "gpipe"
"""A schedule that gives each rank one stage; it stands for all of them."""


class PipePlace(NamedTuple):
    """A place along `pipe` that may need most memory.

    Attributes:
        number: The number of the place.
        state: The bytes that it needs besides activations.
        kept: The activations that its stages keep; None if not known.
    """

    number: int
    state: int
    kept: tuple[KeptByStage, ...] | None


def needed(places: Sequence[PipePlace], run: Run, rows: int, schedule: str, count: int) -> int:
    """Returns the bytes that the fullest device needs.

    Args:
        places: The places of the run, for any number of micro-batches.
        run: The run.
        rows: The examples of a replica in a step.
        schedule: The schedule of its pipeline; "" for a row without schedules, whose micro-batches follow each other.
        count: Its micro-batches.
    """
    ranks, most = run.mesh.parts("layers"), 0
    rows, count = (rows // run.passes, count) if schedule else (rows // count, 1)
    for place in places:
        peaks = in_flight(schedule or _PLAIN, ranks, place.number, count)
        kept = 0 if place.kept is None else peak_bytes(place.kept, rows, count, peaks)
        most = max(most, place.state + kept)
    return most


def schedule_of_places(schedule: str) -> str:
    """Returns the schedule that represents all schedules with the same number of stages on each rank of a pipeline.

    Args:
        schedule: One of them; "" for a row without schedules.
    """
    return schedule if schedule and SCHEDULES[schedule].stages_per_rank > 1 else _PLAIN


def places(run: Run, row: RankedStrategy, schedule: str = _PLAIN) -> tuple[PipePlace, ...]:
    """Returns the places along `pipe` that may need most. Among places with equal stages, only the first, which keeps most.

    Args:
        run: The run; its micro-batches do not matter.
        row: The ranked strategy of the run.
        schedule: As `schedule_of_places` returned it.
    """
    if run.asked.schedule:
        run = dataclasses.replace(run, options=dataclasses.replace(run.options, schedule=schedule))
    by_place = stages_of_ranks(run.workload.model, schedule, run.mesh)
    state, asked = _state(_asked_state(run, row, schedule)), _asked_kept(run, row, schedule)
    found: dict[tuple[object, ...], PipePlace] = {}
    for number, stages in enumerate(by_place):
        # Stages of equal segments keep equally much, and a later rank does not have more micro-batches in flight.
        alike = tuple(tuple((segment.flops, segment.outputs) for segment in stage) for stage in stages)
        before = found.get(alike)
        if before is None or before.state < state[number]:
            kept = _kept(asked, number) if before is None else before.kept
            found[alike] = PipePlace(number if before is None else before.number, state[number], kept)
    return tuple(found.values())


def least_state(base: Run, row: RankedStrategy, mesh: Mesh) -> float:
    """Returns a lower bound of the bytes that the fullest device needs: all that devices hold, split as far as possible.

    Args:
        base: The model, optimizer and bytes of weights.
        row: The row.
        mesh: All devices.
    """
    weights, optimizer = _whole(_Asked(base, row, "", (base.workload.model, base.optimizer, base.dtype, base.weights)))
    parts = mesh.size if row.in_shards else mesh.cutting("parameters", "stacked", "features", "layers").size
    return weights / parts + optimizer / (mesh.size if row.sharding else parts)


@functools.lru_cache(maxsize=8)
def _whole(asked: "_Asked") -> tuple[int, int]:
    """Returns the bytes of all weights with their gradients, and of the optimizer state."""
    run, params = asked.run, asked.run.workload.model.params().values()
    return (num_params(run.workload.model) + num_trained(params)) * run.item_bytes, state_bytes(run, params)


@dataclasses.dataclass(frozen=True)
class _Asked:
    """A key for a cached answer: runs that agree in `schedule` and `decides` share the answer."""

    run: Run = dataclasses.field(compare=False)
    row: RankedStrategy = dataclasses.field(compare=False)
    schedule: str
    decides: tuple[object, ...]


def _asked_kept(run: Run, row: RankedStrategy, schedule: str) -> _Asked:
    """Returns the key for the activations that the places of a run keep, which depend on neither batch nor replicas."""
    split = run.mesh.cutting("layers", "features", "positions")  # experts keep equally much on any number of devices
    keepers = frozenset(axis.keeps(run) for axis in used(run.mesh))
    decides = (run.workload.model, split, keepers, splits_between(run), run.product_bytes, run.techniques.in_passes(1))
    return _Asked(run, row, schedule, decides)


@functools.lru_cache(maxsize=2**14)
def _kept(asked: _Asked, number: int) -> tuple[KeptByStage, ...] | None:
    run = asked.run
    by_place = stages_of_ranks(run.workload.model, asked.schedule, run.mesh)
    return kept_by_stage(run, by_place[number] if len(by_place) > 1 else ())


def _asked_state(run: Run, row: RankedStrategy, schedule: str) -> _Asked:
    """Returns the key for the state of a run, with at most two replicas where their number does not matter."""
    if not row.composed and (row.in_shards or not row.sharding):  # otherwise replicas shard something
        split = run.mesh.cutting("parameters", "stacked", "features", "layers")
        run = dataclasses.replace(
            run, mesh=Mesh.of_replicas(1 + bool(run.mesh.expert_replica_axes), split=dict(split.axes))
        )
    decides = (row, run.workload.model, run.mesh, run.optimizer, run.dtype, run.weights)
    return _Asked(run, row, schedule, decides)


@functools.lru_cache(maxsize=2**14)
def _state(asked: _Asked) -> tuple[int, ...]:
    """Returns the most bytes that a device needs besides activations, for each place along `pipe`."""
    if asked.row.composed:
        return _composed(asked.run, asked.row, asked.schedule)
    run = asked.run
    held, devices = [0] * run.mesh.parts("layers"), 0
    for footprint in FOOTPRINTS[run.strategy.cost](run):
        place = devices * len(held) // run.num_devices
        held[place] = max(held[place], needed_bytes(footprint) - (footprint.activations_bytes or 0))
        devices += footprint.count
    return tuple(held)


class _Elements(NamedTuple):
    """The number of parameters of a segment that a rank has before sharding: `stacked` in experts, `dense` elsewhere."""

    dense: int
    stacked: int


@functools.lru_cache(maxsize=64)
def _elements(model: ModelSpec, split: Mesh) -> dict[str, _Elements]:
    """Returns, for each segment, what a rank has of it along the axes that split layers."""
    found = {}
    for segment in model.segments():
        sizes = [0, 0]
        for param in held_of(model, split, parameters_of(model, segment)).values():
            sizes[param.stacked > 0] += param.size
        found[segment.name] = _Elements(*sizes)
    return found


def _composed(run: Run, row: RankedStrategy, schedule: str) -> tuple[int, ...]:
    """Returns the same as `_state`, for a composition that no row runs."""
    model, mesh, found = run.workload.model, run.mesh, []
    elements = _elements(model, mesh.cutting("features", "stacked"))
    replicas, of_experts = (math.prod(map(mesh.axis, axes)) for axes in (mesh.replica_axes, mesh.expert_replica_axes))
    shards = mesh.parts("parameters")
    for stages in stages_of_ranks(model, schedule, mesh):
        each = [elements[segment.name] for stage in stages for segment in stage]
        dense, stacked = (sum(sizes) for sizes in zip(*each, strict=True))
        if row == MEGATRON:
            own = 2 * (dense + stacked) * run.item_bytes
            dense, stacked = -(-dense // replicas), -(-stacked // of_experts)
            copied = 0
        else:
            dense, stacked = -(-dense // (shards * mesh.parts("stacked"))), -(-stacked // shards)
            own, copied = 2 * (dense + stacked) * run.item_bytes, _gathered(each) * run.product_bytes
        found.append(own + copied + optimizer_bytes(run, dense) + optimizer_bytes(run, stacked))
    return tuple(found)


def _gathered(segments: Sequence[_Elements]) -> int:
    """Returns the most elements that are gathered at once: a segment inside and outside its buffer, and the buffer before it."""
    sizes = [0, *(sum(each) for each in segments)]
    return max(before + 2 * size for before, size in itertools.pairwise(sizes))

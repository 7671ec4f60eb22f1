"""Which rank holds which stage of a model that is split by layers, for both the run and its prediction.

References:
    Huang et al., arXiv 1811.06965 (GPipe); Narayanan et al., arXiv 2104.04473 (1F1B, interleaved); Lamy-Poirier,
    arXiv 2211.05953 (breadth-first, "looped BFS"); Qi et al., arXiv 2401.10241 (zero bubble, ZB-V); DeepSeek-AI, arXiv
    2412.19437 (DualPipe, whose V-shaped half is DualPipeV).
"""

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

from samestep.common.mesh import Mesh
from samestep.common.workload.models.spec import ModelSpec, Segment, parameters_of

Stages = tuple[tuple[Segment, ...], ...]
"""The segments of each stage, in order."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The placement and the order of a schedule's stages.

    Attributes:
        stages_per_rank: The number of stages of each rank.
        v_shaped: Whether the stages go down the ranks and back up, so rank 0 holds the first and the last stage.
        fills_stages: Whether it needs at least as many micro-batches as stages.
        in_rounds: Whether it runs its micro-batches in equal rounds, each with at least one micro-batch per rank.
        delays_weights: Whether it computes weight gradients separately from input gradients, and later.
        holds_all: Whether it runs all forward passes before the first backward pass, so all micro-batches are in flight at once.
    """

    stages_per_rank: int = 1
    v_shaped: bool = False
    fills_stages: bool = False
    in_rounds: bool = False
    delays_weights: bool = False
    holds_all: bool = False

    @property
    def last_phase(self) -> str:
        """The phase after which a micro-batch has added everything to the gradients of a stage; see `passes.py`."""
        return "weights" if self.delays_weights else "backward"

    def stage_ranks(self, num_ranks: int) -> tuple[int, ...]:
        """Returns the rank along the axis `pipe` that holds each stage."""
        stages = range(num_ranks * self.stages_per_rank)
        return tuple(2 * num_ranks - 1 - s if self.v_shaped and s >= num_ranks else s % num_ranks for s in stages)


SCHEDULES: Mapping[str, Schedule] = {
    "gpipe": Schedule(holds_all=True),
    "1f1b": Schedule(fills_stages=True),
    "interleaved_1f1b": Schedule(2, in_rounds=True),
    "looped_bfs": Schedule(2, holds_all=True),
    "interleaved_zero_bubble": Schedule(2, in_rounds=True, delays_weights=True),
    "zbv_zero_bubble": Schedule(2, v_shaped=True, delays_weights=True),
    "dualpipev": Schedule(2, v_shaped=True, fills_stages=True, delays_weights=True),
}


@functools.lru_cache(maxsize=8)  # every rank of a pipeline calls it
def group_segments(segments: tuple[Segment, ...], num_stages: int) -> Stages:
    """Groups segments into contiguous stages, such that the largest has as few FLOPs as possible.

    Among several optimal groupings, it chooses the one whose stages' starts come first in lexicographic order, of those whose
    prefixes are optimal as well. A thousand segments take a fraction of a second.

    Args:
        segments: The segments of a model, in order; at least `num_stages`.
        num_stages: The number of pipeline ranks x stages per rank.
    """
    total = [0, *itertools.accumulate(segment.flops for segment in segments)]
    ends = range(1, len(segments) - num_stages + 2)
    costs, places = {end: total[end] for end in ends}, dict.fromkeys(ends, 0)
    chosen = [dict.fromkeys(ends, 0)]
    for _ in range(1, num_stages):
        starts = _last_starts(total, costs, places)
        costs = {end: max(costs[start], total[end] - total[start]) for end, start in starts.items()}
        keys = {end: (places[start], start) for end, start in starts.items()}
        order = {key: place for place, key in enumerate(sorted(set(keys.values())))}
        places = {end: order[key] for end, key in keys.items()}
        chosen.append(starts)
    cuts = [len(segments)]
    for starts in reversed(chosen):
        cuts.append(starts[cuts[-1]])
    return tuple(tuple(segments[start:end]) for start, end in itertools.pairwise(reversed(cuts)))


def stages_of_ranks(model: ModelSpec, schedule: str, mesh: Mesh) -> tuple[Stages, ...]:
    """Returns the stages that each rank of a pipeline holds; without a pipeline, those of a single rank.

    Args:
        model: The model.
        schedule: A key of `SCHEDULES`.
        mesh: The mesh of all devices.
    """
    return _stages_of_ranks(model, schedule, mesh.parts("layers"))


@functools.lru_cache(maxsize=64)  # a search considers many pipelines of a model
def _stages_of_ranks(model: ModelSpec, schedule: str, num_ranks: int) -> tuple[Stages, ...]:
    holders = SCHEDULES[schedule].stage_ranks(num_ranks)
    stages = list(zip(group_segments(model.segments(), len(holders)), holders, strict=True))
    return tuple(tuple(stage for stage, holder in stages if holder == rank) for rank in range(num_ranks))


def _last_starts(total: Sequence[int], costs: Mapping[int, int], places: Mapping[int, int]) -> dict[int, int]:
    """Returns where the last stage starts, for every end of a grouping with one more stage.

    With a later start of the last stage, the largest of the earlier stages grows and the last stage shrinks. So the best starts
    are adjacent, around the one at which the two cross.

    Args:
        total: For each segment, the FLOPs of all segments before it.
        costs: End -> the FLOPs of the largest stage, with one stage fewer.
        places: End -> the rank of that grouping when groupings are sorted by their stages' starts.
    """
    found: dict[int, int] = {}
    for end in range(min(costs) + 1, max(costs) + 2):
        starts, until = range(min(costs), end), total[end]
        crossing = bisect.bisect_left(starts, True, key=lambda start: costs[start] >= until - total[start])
        least = min(max(costs[start], until - total[start]) for start in starts[max(crossing - 1, 0) : crossing + 1])
        first = bisect.bisect_left(starts, True, key=lambda start: until - total[start] <= least)
        last = bisect.bisect_right(starts, least, key=lambda start: costs[start])
        found[end] = min(starts[first:last], key=lambda start: places[start])
    return found


def server_segments(model: ModelSpec) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Returns the segments that a parameter server holds, and those that stay on its workers.

    Returns:
        The segments whose parameters are all tables with one row looked up per example, and the others; if there are no such
        tables, all segments and none.
    """
    segments = model.segments()
    lookups = {s.name: [param.lookups for param in parameters_of(model, s).values()] for s in segments}
    tables = tuple(s for s in segments if lookups[s.name] and set(lookups[s.name]) == {1})
    return (tables, tuple(s for s in segments if s not in tables)) if tables else (segments, ())

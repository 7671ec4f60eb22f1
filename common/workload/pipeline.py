"""Which rank holds which stage of a model that is split by layers. The run and its prediction both ask here.

References:
    Huang et al., arXiv 1811.06965 (GPipe); Narayanan et al., arXiv 2104.04473 (1F1B, interleaved); Lamy-Poirier,
    arXiv 2211.05953 (breadth-first, "looped BFS"); Qi et al., arXiv 2401.10241 (zero bubble, ZB-V); DeepSeek-AI, arXiv
    2412.19437 (DualPipe, whose V-shaped half is DualPipeV).
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from samestep.common.workload.models.spec import ModelSpec, Segment, parameters_of

Stages = tuple[tuple[Segment, ...], ...]
"""The segments of each stage, in order."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Where a schedule wants its stages.

    Attributes:
        stages_per_rank: How many.
        v_shaped: Whether the stages come back the way they went: rank 0 holds the first and the last.
        fills_stages: Whether it needs a micro-batch for each stage.
        in_rounds: Whether it takes its micro-batches in equal rounds of at least one a rank.
    """

    stages_per_rank: int = 1
    v_shaped: bool = False
    fills_stages: bool = False
    in_rounds: bool = False

    def stage_ranks(self, num_ranks: int) -> tuple[int, ...]:
        """The rank along the axis `pipe` that holds each stage."""
        stages = range(num_ranks * self.stages_per_rank)
        return tuple(2 * num_ranks - 1 - s if self.v_shaped and s >= num_ranks else s % num_ranks for s in stages)


SCHEDULES: Mapping[str, Schedule] = {
    "gpipe": Schedule(),
    "1f1b": Schedule(fills_stages=True),
    "interleaved_1f1b": Schedule(2, in_rounds=True),
    "looped_bfs": Schedule(2),
    "interleaved_zero_bubble": Schedule(2, in_rounds=True),
    "zbv_zero_bubble": Schedule(2, v_shaped=True),
    "dualpipev": Schedule(2, v_shaped=True, fills_stages=True),
}


def group_segments(segments: Sequence[Segment], num_stages: int) -> Stages:
    """Groups segments into contiguous stages whose largest has the fewest FLOPs possible.

    Args:
        segments: A model's, in order; at least `num_stages` of them.
        num_stages: Pipeline ranks x stages per rank.
    """
    total = [0, *itertools.accumulate(segment.flops for segment in segments)]
    best: Mapping[tuple[int, int], tuple[int, tuple[int, ...]]] = {(0, 0): (0, ())}
    for stage in range(1, num_stages + 1):
        best = {
            (stage, end): min(
                (max(best[stage - 1, start][0], total[end] - total[start]), (*best[stage - 1, start][1], start))
                for start in range(stage - 1, end)
                if (stage - 1, start) in best
            )
            for end in range(stage, len(segments) + 1)
        }
    starts = (*best[num_stages, len(segments)][1], len(segments))
    return tuple(tuple(segments[start:end]) for start, end in itertools.pairwise(starts))


def server_segments(model: ModelSpec) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """What a parameter server holds, and what stays on its workers.

    Returns:
        The segments whose parameters are all tables with one row per example, and the others; if there are no such
        tables, everything and nothing.
    """
    segments = model.segments()
    lookups = {s.name: [param.lookups for param in parameters_of(model, s).values()] for s in segments}
    tables = tuple(s for s in segments if lookups[s.name] and set(lookups[s.name]) == {1})
    return (tables, tuple(s for s in segments if s not in tables)) if tables else (segments, ())

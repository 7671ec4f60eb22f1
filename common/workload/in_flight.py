"""How many micro-batches a rank of a pipeline has in flight: gone forward through a stage of it, and not yet back.

References:
    torch/distributed/pipelining/schedules.py of torch 2.13, whose order of computations this counts; Narayanan et al., arXiv
    2104.04473, section 2.2 (1F1B keeps at most one micro-batch a rank in flight); Qi et al., arXiv 2401.10241 (a
    micro-batch is kept until its gradient by the weights is taken).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

Counts = tuple[int, int]
"""Of one stage: micro-batches that have not come back, and those whose gradient by the weights is put off."""


class Moment(NamedTuple):
    """What is in flight ahead of a backward pass.

    Attributes:
        counts: Of each stage of a rank.
        stage: Through which of them the pass goes; where gradients by weights are put off, none is computed again for it.
    """

    counts: tuple[Counts, ...]
    stage: int = 0


Peaks = tuple[Moment, ...]
"""Candidates for a rank's peak."""
ONE: Peaks = (Moment(((1, 0),)),)
"""Those of a stage that takes one micro-batch at a time."""
_SEEN_ROUNDS = 4
"""Rounds of an interleaved schedule in which every moment is seen: two pairs behind those that are taken ahead."""


def in_flight(schedule: str, ranks: int, rank: int, microbatches: int) -> Peaks:
    """Counts the micro-batches of each stage of a rank at every moment that can be its peak of memory.

    Which one is the peak depends on the sizes of the stages, and on what of a stage is computed again for its backward pass.

    Args:
        schedule: A key of `SCHEDULES`.
        ranks: The number of ranks of the pipeline.
        rank: Which of them.
        microbatches: The number of micro-batches that go through together.
    """
    return _PEAKS[schedule](ranks, rank, microbatches)


def _interleaved(ranks: int, rank: int, microbatches: int, hop: int, delay: int) -> Peaks:
    """Follows the forward passes that a rank takes ahead of its backward passes, in rounds, on its two stages.

    Args:
        ranks: The number of ranks.
        rank: Which of them.
        microbatches: The number of micro-batches.
        hop: How many forward passes more each rank takes ahead than the next one.
        delay: How many backward passes later a micro-batch's gradient by the weights is taken.
    """
    a_round = microbatches // max(1, microbatches // ranks)
    # Behind these the same moments come again, two rounds apart.
    total = 2 * a_round * min(microbatches // a_round, _SEEN_ROUNDS)
    ahead = min(a_round + hop * (ranks - 1 - rank), total)
    seen, ended, present, put_off = dict[Moment, None](), set[int](), [0, 0], [0, 0]
    for taken in range(total + ahead):
        if taken < total:
            present[taken // a_round % 2] += 1
        if (back := taken - ahead) < 0:
            continue
        stage = 1 - back // a_round % 2
        if stage not in ended:  # without forward passes in between, ever less is in flight
            seen[Moment(tuple(zip(present, put_off, strict=True)), stage)] = None
        if taken >= total:
            ended.add(stage)
        present[stage] -= 1
        put_off[stage] += 1
        if (weights := back - delay) >= 0:
            put_off[1 - weights // a_round % 2] -= 1
    return tuple(seen)


def _zbv(ranks: int, rank: int, microbatches: int) -> Peaks:
    first = _none_put_off(min(microbatches, 2 * ranks - rank - 1), min(microbatches, rank + 1))
    return first + _none_put_off(2 * ranks - rank, rank) if microbatches >= 2 * ranks - rank else first


def _breadth_first(ranks: int, rank: int, microbatches: int) -> Peaks:
    return (Moment(((microbatches, 0), (microbatches, 0)), stage=1), Moment(((microbatches, 0), (0, 0)), stage=0))


def _none_put_off(*counts: int) -> Peaks:
    return (Moment(tuple((count, 0) for count in counts)),)


_PEAKS: Mapping[str, Callable[[int, int, int], Peaks]] = {
    "gpipe": lambda ranks, rank, microbatches: _none_put_off(microbatches),
    "1f1b": lambda ranks, rank, microbatches: _none_put_off(min(microbatches, ranks - rank)),
    "interleaved_1f1b": lambda ranks, rank, microbatches: _interleaved(ranks, rank, microbatches, 2, 0),
    "looped_bfs": _breadth_first,
    "interleaved_zero_bubble": lambda ranks, rank, microbatches: _interleaved(ranks, rank, microbatches, 1, rank),
    "zbv_zero_bubble": _zbv,
    "dualpipev": lambda ranks, rank, microbatches: _none_put_off(2 * ranks - rank, rank + 1),
}

"""How many micro-batches a rank of a pipeline has in flight: gone forward through a stage of it, and not yet back.

References:
    torch/distributed/pipelining/schedules.py of torch 2.13, whose order of computations this counts; Narayanan et al., arXiv
    2104.04473, section 2.2 (1F1B keeps at most one micro-batch a rank in flight); Qi et al., arXiv 2401.10241 (a
    micro-batch is kept until its gradient by the weights is taken).
"""

from collections.abc import Callable, Mapping

Counts = tuple[int, int]
"""Of one stage: micro-batches that have not come back, and those whose gradient by the weights is put off."""
Peaks = tuple[tuple[Counts, ...], ...]
"""Candidates for a rank's peak, each with the counts of every one of its stages."""


def in_flight(schedule: str, ranks: int, rank: int, microbatches: int) -> Peaks:
    """Counts the micro-batches of each stage of a rank at every moment that can be its peak of memory.

    Which one is the peak depends on the sizes of the stages.

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
    total = 2 * microbatches
    ahead = min(a_round + hop * (ranks - 1 - rank), total)
    seen, present, put_off = {}, [0, 0], [0, 0]
    for taken in range(min(total, ahead + delay + 4 * a_round)):  # then the same moments come again, two rounds apart
        present[taken // a_round % 2] += 1
        seen[tuple(zip(present, put_off, strict=True))] = None
        if (back := taken - ahead) >= 0:
            stage = 1 - back // a_round % 2
            present[stage] -= 1
            put_off[stage] += 1
            if (weights := back - delay) >= 0:
                put_off[1 - weights // a_round % 2] -= 1
    return tuple(seen)


def _zbv(ranks: int, rank: int, microbatches: int) -> Peaks:
    first = _none_put_off(min(microbatches, 2 * ranks - rank - 1), min(microbatches, rank + 1))
    return first + _none_put_off(2 * ranks - rank, rank) if microbatches >= 2 * ranks - rank else first


def _none_put_off(*counts: int) -> Peaks:
    return (tuple((count, 0) for count in counts),)


_PEAKS: Mapping[str, Callable[[int, int, int], Peaks]] = {
    "gpipe": lambda ranks, rank, microbatches: _none_put_off(microbatches),
    "1f1b": lambda ranks, rank, microbatches: _none_put_off(min(microbatches, ranks - rank)),
    "interleaved_1f1b": lambda ranks, rank, microbatches: _interleaved(ranks, rank, microbatches, 2, 0),
    "looped_bfs": lambda ranks, rank, microbatches: _none_put_off(microbatches, microbatches),
    "interleaved_zero_bubble": lambda ranks, rank, microbatches: _interleaved(ranks, rank, microbatches, 1, rank),
    "zbv_zero_bubble": _zbv,
    "dualpipev": lambda ranks, rank, microbatches: _none_put_off(2 * ranks - rank, rank + 1),
}

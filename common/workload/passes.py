"""The order in which a rank of a pipeline runs the forward and backward passes of its micro-batches, under each schedule.

A pass of one micro-batch through one stage is named by its phase and by the number of the stage on the rank, 0 or 1. If weight
gradients are deferred, a backward pass computes the gradient of the inputs, and a separate pass computes that of the weights.

References:
    torch/distributed/pipelining/schedules.py of torch 2.13, which has these orders; the papers are those of
    `pipeline_schedule.py`.
"""

import functools
from collections.abc import Callable, Mapping

Pass = tuple[str, int]
"""A pass: ("forward", "backward" or "weights"; the number of the stage on the rank)."""
Passes = Callable[[int, int, int], list[Pass]]
"""(rank, number of ranks, number of micro-batches) -> the passes of the rank, in order."""

_F0, _F1, _B0, _B1 = ("forward", 0), ("forward", 1), ("backward", 0), ("backward", 1)
_W0, _W1 = ("weights", 0), ("weights", 1)


def gpipe(rank: int, ranks: int, microbatches: int) -> list[Pass]:
    """Runs all forward passes, then all backward passes; the arguments are those of `Passes`."""
    return [_F0] * microbatches + [_B0] * microbatches


def one_forward_one_backward(rank: int, ranks: int, microbatches: int) -> list[Pass]:
    """Runs the backward pass of a micro-batch as soon as its gradient arrives; the arguments are those of `Passes`."""
    ahead = min(microbatches, ranks - rank)
    return [_F0] * ahead + [_B0, _F0] * (microbatches - ahead) + [_B0] * ahead


def breadth_first(rank: int, ranks: int, microbatches: int) -> list[Pass]:
    """Runs all micro-batches through a stage before any runs through the next; the arguments are those of `Passes`."""
    return [each for each in (_F0, _F1, _B1, _B0) for _ in range(microbatches)]


def interleaved(rank: int, ranks: int, microbatches: int, hops: int) -> list[Pass]:
    """Runs rounds of micro-batches through one stage after the other, interleaved with the backward passes.

    Args:
        rank: The rank.
        ranks: The number of ranks.
        microbatches: The number of micro-batches.
        hops: The number of forward passes by which a rank is ahead for each rank after it: 2, or 1 if weight gradients are
            deferred.
    """
    size = microbatches // max(1, microbatches // ranks)  # the size of a round
    total = 2 * microbatches
    ahead = min(size + hops * (ranks - 1 - rank), total)
    forward = [("forward", number // size % 2) for number in range(total)]
    backward = [("backward", 1 - number // size % 2) for number in range(total)]
    pairs = zip(forward[ahead:], backward, strict=False)
    return [*forward[:ahead], *(each for pair in pairs for each in pair), *backward[total - ahead :]]


def interleaved_zero_bubble(rank: int, ranks: int, microbatches: int) -> list[Pass]:
    """Defers weight gradients by one backward pass for each rank before it; the arguments are those of `Passes`."""
    passes, put_off = list[Pass](), list[Pass]()
    for phase, stage in interleaved(rank, ranks, microbatches, hops=1):
        passes.append((phase, stage))
        put_off += [("weights", stage)] if phase == "backward" else []
        passes += [put_off.pop(0)] if len(put_off) > rank else []
    return passes + put_off


def zero_bubble_v(rank: int, ranks: int, microbatches: int) -> list[Pass]:
    """Runs micro-batches down one side of a V and up the other; the arguments are those of `Passes`."""
    count = max(2 * ranks - 1, microbatches)
    passes = [_F0] * (2 * (ranks - rank) - 1) + [_F1, _F0] * rank + [_F1, _B1, _W1] * (ranks - rank)
    while passes.count(_F1) < passes.count(_F0) or passes.count(_F0) < count:
        passes += [_F0] if passes.count(_F0) < count else []
        passes += [_B0, _W0, _F1, _B1, _W1]
    passes += [_B0, _B1] * rank + [_B0, _W0] * (ranks - rank) + [_W1] * rank + [_W0] * rank
    seen: dict[Pass, int] = {}
    kept = []
    for each in passes:  # the order is that of a full pipeline, without missing micro-batches
        seen[each] = seen.get(each, 0) + 1
        kept += [each] if seen[each] <= microbatches else []
    return kept


def dual_pipe_v(rank: int, ranks: int, microbatches: int) -> list[Pass]:
    """Pairs each forward pass with a backward pass on the other side of a V; the arguments are those of `Passes`."""
    behind = ranks - rank - 1
    passes = [_F0] * (2 * behind) + [_F0, _F1] * (rank + 1) + [_B1, _W1, _F1] * behind
    passes += [_F0, _B1, _W1, _F1, _B0, _W0] * (microbatches - 2 * ranks + rank + 1)
    passes += [_B1, _W1, _F1, _B0, _W0] * behind
    both, whole = [_B1, _B0] * (rank + 1), rank + 1  # the first ones include the weights; later ones defer them
    put_off = list[Pass]()
    for number, (phase, stage) in enumerate(both):
        passes.append((phase, stage))
        (passes if number < whole else put_off).append(("weights", stage))
    for _ in range(behind):
        passes += [put_off.pop(0)] if put_off else []
        passes.append(_B0)
        put_off.append(_W0)
    return passes + put_off


PASSES: Mapping[str, Passes] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved_1f1b": functools.partial(interleaved, hops=2),
    "looped_bfs": breadth_first,
    "interleaved_zero_bubble": interleaved_zero_bubble,
    "zbv_zero_bubble": zero_bubble_v,
    "dualpipev": dual_pipe_v,
}
"""Schedule -> the order of a rank's passes."""

"""The most bytes that a device keeps at once, given what its stages keep for each example, micro-batch and batch.

What a stage keeps does not depend on how many examples there are. A search for micro-batches adds it up once. A micro-batch
is in flight on a rank of a pipeline from when it has gone forward through a stage of it until it has come back.

References:
    torch/distributed/pipelining/schedules.py of torch 2.13, whose order of computations this counts; Narayanan et al., arXiv
    2104.04473, section 2.2 (1F1B keeps at most one micro-batch a rank in flight); Qi et al., arXiv 2401.10241 (a
    micro-batch is kept until its gradient by the weights is taken).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Counts = tuple[int, int]
"""For one stage: the micro-batches that have not come back, and those whose gradient by the weights is deferred."""


class Moment(NamedTuple):
    """What is in flight just before a backward pass.

    Attributes:
        counts: The counts of each stage of a rank.
        stage: The stage through which the pass goes; where gradients by the weights are deferred, nothing is recomputed for it.
    """

    counts: tuple[Counts, ...]
    stage: int = 0


Peaks = tuple[Moment, ...]
"""Candidates for a rank's peak."""
ONE: Peaks = (Moment(((1, 0),)),)
"""The candidates of a stage that takes one micro-batch at a time."""
_SEEN_ROUNDS = 4
"""The rounds of an interleaved schedule that show every moment: two pairs after those of the warm-up."""


class KeptBytes(NamedTuple):
    """The bytes that parts of a model keep on a device: of an example, of a micro-batch, and of each example of the whole batch.

    The last ones stay while any micro-batch is in flight.
    """

    size: int = 0
    fixed: int = 0
    batch: int = 0

    def plus(self, other: "KeptBytes", times: int = 1) -> "KeptBytes":
        """Returns both together.

        Args:
            other: The bytes to add.
            times: How often to add them; -1 subtracts them.
        """
        return KeptBytes(*(one + times * more for one, more in zip(self, other, strict=True)))

    def of(self, rows: int, microbatches: int) -> tuple[int, int]:
        """Returns the bytes of a micro-batch, and those of the batch.

        Args:
            rows: The examples of all micro-batches.
            microbatches: How many there are.
        """
        return rows // microbatches * self.size + self.fixed, rows * self.batch


class KeptByStage(NamedTuple):
    """What a stage of the model keeps on a device for its backward pass.

    Attributes:
        now: What it keeps until the gradient by its inputs is computed.
        late: What it keeps until the gradient by its weights is computed, which may be deferred.
        again: What it keeps in addition while a segment is recomputed, for the segments that may need most.
    """

    now: KeptBytes
    late: KeptBytes
    again: tuple[KeptBytes, ...] = ()


def peak_bytes(stages: Sequence[KeptByStage], rows: int, microbatches: int, peaks: Peaks) -> int:
    """Returns the most bytes that a device keeps at once of an accumulation step.

    Args:
        stages: What its stages keep.
        rows: The examples of the step.
        microbatches: The number of micro-batches that they are cut into.
        peaks: Candidates for the micro-batches of each stage in flight, as `in_flight` has them.
    """
    kept = [(*stage.now.of(rows, microbatches), *stage.late.of(rows, microbatches)) for stage in stages]
    again = [[each.of(rows, microbatches) for each in stage.again] for stage in stages]
    return max(sum(map(_in_flight, kept, counts)) + _again(again[back], counts[back][0]) for counts, back in peaks)


def _again(parts: Sequence[tuple[int, int]], present: int) -> int:
    """Returns the most that a stage keeps more while it goes backward with one of the micro-batches that are present."""
    # The targets stay while another micro-batch in flight needs its part of them.
    return max([0, *(size if present > 1 else size + batch for size, batch in parts)])


def _in_flight(kept: tuple[int, int, int, int], counts: Counts) -> int:
    """Multiplies what a stage keeps of a micro-batch and of the batch: at first, and while its weights are put off."""
    size, batch, late_size, late_batch = kept
    present, put_off = counts
    return present * size + put_off * late_size + (batch if present else late_batch if put_off else 0)


def largest(kept: Sequence[KeptBytes]) -> tuple[KeptBytes, ...]:
    """Returns those of several that no other one exceeds for every number of examples.

    Args:
        kept: All of them.
    """
    found: list[KeptBytes] = []
    for each in reversed(kept):  # the later ones come on top of what the earlier ones kept
        if not any(all(one <= other for one, other in zip(each, larger, strict=True)) for larger in found):
            found.append(each)
    return tuple(found)


def in_flight(schedule: str, ranks: int, rank: int, microbatches: int) -> Peaks:
    """Counts the micro-batches of each stage of a rank at every moment that can be its peak of memory.

    Which moment is the peak depends on the sizes of the stages, and on what is recomputed for the backward pass of a stage.

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

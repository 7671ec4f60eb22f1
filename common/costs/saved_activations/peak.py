"""The most bytes that a device keeps at once, given what its stages keep for each example, micro-batch and batch.

What a stage keeps does not depend on how many examples there are, so a search for micro-batches adds it up once. A
micro-batch is in flight on a rank from its forward pass through a stage of the rank until its backward pass.

References:
    Narayanan et al., arXiv 2104.04473, section 2.2 (1F1B keeps at most one micro-batch a rank in flight); Qi et al.,
    arXiv 2401.10241 (a micro-batch is kept until the gradient of the weights is computed).
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

from samestep.common.workload.passes import PASSES
from samestep.common.workload.pipeline_schedule import SCHEDULES

Counts = tuple[int, int]
"""For one stage: the micro-batches whose backward pass is outstanding, and those whose gradient of the weights is deferred."""


class Moment(NamedTuple):
    """What is in flight just before a backward pass.

    Attributes:
        counts: The counts of each stage of a rank.
        stage: The stage through which the pass goes; 0 if gradients of the weights are deferred and nothing is
            recomputed.
    """

    counts: tuple[Counts, ...]
    stage: int = 0

    def is_within(self, other: "Moment") -> bool:
        """Returns whether no stage keeps more than at another moment; a deferred micro-batch keeps no more than one in flight."""
        pairs = zip(self.counts, other.counts, strict=True)
        return self.stage == other.stage and all(one[0] <= more[0] and sum(one) <= sum(more) for one, more in pairs)


Peaks = tuple[Moment, ...]
"""Candidates for a rank's peak."""
ONE: Peaks = (Moment(((1, 0),)),)
"""The candidates of a stage that takes one micro-batch at a time."""
_SEEN_ROUNDS = 2
"""After this many rounds of one micro-batch for each rank, the same moments come again."""


class KeptBytes(NamedTuple):
    """The bytes that parts of a model keep on a device: for an example, a micro-batch, and each example of the whole batch.

    The last ones stay while any micro-batch is in flight.
    """

    size: int = 0
    fixed: int = 0
    batch: int = 0

    def plus(self, other: "KeptBytes", times: int = 1) -> "KeptBytes":
        """Returns the sum of both.

        Args:
            other: The bytes to add.
            times: How often to add them; -1 subtracts them.
        """
        return KeptBytes(*(one + times * more for one, more in zip(self, other, strict=True)))

    def of(self, rows: int, microbatches: int) -> tuple[int, int]:
        """Returns the bytes of a micro-batch, and those of the batch.

        Args:
            rows: The examples of all micro-batches.
            microbatches: The number of micro-batches.
        """
        return rows // microbatches * self.size + self.fixed, rows * self.batch


class KeptByStage(NamedTuple):
    """What a stage of the model keeps on a device for its backward pass.

    Attributes:
        now: What it keeps until the gradient of its inputs is computed.
        late: What it keeps until the gradient of its weights is computed, which may be deferred.
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
    """Returns the most that a stage keeps in addition during the backward pass of one of the micro-batches that are present."""
    # The targets stay while another micro-batch in flight needs its part of them.
    return max([0, *(size if present > 1 else size + batch for size, batch in parts)])


def _in_flight(kept: tuple[int, int, int, int], counts: Counts) -> int:
    """Returns what a stage keeps for micro-batches that are present, and for those whose gradients of weights are deferred."""
    size, batch, late_size, late_batch = kept
    present, put_off = counts
    return present * size + put_off * late_size + (batch if present else late_batch if put_off else 0)


def largest(kept: Sequence[KeptBytes]) -> tuple[KeptBytes, ...]:
    """Returns those that no other one exceeds for every number of examples.

    Args:
        kept: The candidates.
    """
    found: list[KeptBytes] = []
    for each in reversed(kept):  # the later ones come on top of what the earlier ones kept
        if not any(all(one <= other for one, other in zip(each, larger, strict=True)) for larger in found):
            found.append(each)
    return tuple(found)


def in_flight(schedule: str, ranks: int, rank: int, microbatches: int) -> Peaks:
    """Returns the moments of a rank that can be its peak: those at which no other moment has as much of every stage in flight.

    Which of them it is depends on the sizes of the stages, and on what is recomputed for the backward pass of a stage.

    Args:
        schedule: A key of `SCHEDULES`.
        ranks: The number of ranks of the pipeline.
        rank: The rank.
        microbatches: The number of micro-batches that go through together.
    """
    rule = SCHEDULES[schedule]
    if not (rule.holds_all or (rule.in_rounds and microbatches % ranks)):  # rounds may be larger than the ranks
        microbatches = min(microbatches, _SEEN_ROUNDS * ranks)
    return _follow(schedule, ranks, rank, microbatches)


@functools.lru_cache(maxsize=2**14)  # a search asks for every number of micro-batches
def _follow(schedule: str, ranks: int, rank: int, microbatches: int) -> Peaks:
    rule, found = SCHEDULES[schedule], list[Moment]()
    present, put_off = [0] * rule.stages_per_rank, [0] * rule.stages_per_rank
    passes = PASSES[schedule](rank, ranks, microbatches)
    for before, (phase, stage) in zip([None, *passes], passes, strict=False):
        if phase == "forward":
            present[stage] += 1
        elif phase == "weights":
            put_off[stage] -= 1
        else:
            now = Moment(tuple(zip(present, put_off, strict=True)), 0 if rule.delays_weights else stage)
            # Right after a pass of the same kind, less is in flight than before that one.
            if before != (phase, stage) and not any(now.is_within(other) for other in found):
                found = [each for each in found if not each.is_within(now)] + [now]
            present[stage] -= 1
            put_off[stage] += rule.delays_weights
    return tuple(found)

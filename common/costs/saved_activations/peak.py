"""The most bytes that a device keeps at once, of what its stages keep of each example, micro-batch and batch.

What a stage keeps does not depend on how many examples there are. A search for micro-batches adds it up once.
"""

from collections.abc import Sequence
from typing import NamedTuple

from samestep.common.workload.in_flight import Counts, Peaks


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
            other: What comes on top.
            times: How often; -1 takes it away.
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
        now: Until the gradient by its inputs was taken.
        late: Until that by its weights was taken, which may be put off.
        again: What it keeps more while a segment is computed again, of those segments that may need most.
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
    """Returns those of several that are not below another one in everything, whatever the number of examples.

    Args:
        kept: All of them.
    """
    found: list[KeptBytes] = []
    for each in reversed(kept):  # the later ones come on top of what the earlier ones kept
        if not any(all(one <= other for one, other in zip(each, larger, strict=True)) for larger in found):
            found.append(each)
    return tuple(found)

"""What a run did before a step, as far as causes need it, in nearly constant memory."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from samestep.common.judging.recorded.pairing import Pairing
from samestep.common.steps.projections import PROJECTIONS
from samestep.common.steps.record import Phase
from samestep.common.steps.recorded_run import RunStep, Sums, digest_of, own_rows

MOST_REMEMBERED = 100_000
"""The largest number of steps whose rates and digests are kept; a repeated epoch that is longer is not recognized."""
_BITS = 27
"""The number of bits in the table as a power of two: 16 MiB."""
_MOST = 2**25
"""The largest number of examples that are remembered. With that many, a fifth of new examples are taken for known ones, far fewer
than most of a batch."""
_TOGETHER = 16
"""The number of steps whose examples enter the table together, which is faster than one by one."""


class SeenExamples:
    """Remembers hashes of examples: one bit of a table for each."""

    def __init__(self) -> None:
        """Starts with no examples."""
        self._table, self._count = np.zeros(2 ** (_BITS - 3), np.uint8), 0
        self._waiting: list[Sequence[int]] = []

    def add(self, examples: Sequence[int]) -> None:
        """Remembers the examples of a step.

        Args:
            examples: Their hashes.
        """
        if len(self._waiting) > _TOGETHER:
            self._take()
        self._waiting.append(examples)

    def knew_last(self) -> bool:
        """Returns whether most examples of the last step were in steps before it."""
        self._take()
        if not self._waiting or not self._waiting[0]:
            return False
        bytes_, bits = _places(self._waiting[0])
        return 2 * int(np.count_nonzero(self._table[bytes_] & bits)) > len(bits)

    def _take(self) -> None:
        """Enters all steps but the last into the table."""
        *before, last = self._waiting or [[]]
        self._waiting = [last]
        if before and self._count < _MOST:
            together = [*itertools.chain.from_iterable(before)]
            bytes_, bits = _places(together)
            np.bitwise_or.at(self._table, bytes_, bits)
            self._count += len(together)


@dataclasses.dataclass(eq=False)
class Past:
    """What one run did before a step.

    Attributes:
        pairing: The pairing of the tensors of both runs.
        side: 0 if the run is A, 1 if it is B.
        usual_passes: The largest number of backward passes in a step so far.
        rates: The learning rate of each step.
        digests: A hash of the examples of each step.
        last: What was recorded of all its tensors in the step before this one.
        strays: The projections of the gradients that steps left behind without setting them to zero; NaN or None where there
            are none.
        examples: The examples of all steps.
    """

    pairing: Pairing
    side: int
    usual_passes: int = 0
    rates: list[float] = dataclasses.field(default_factory=list)
    digests: list[int | None] = dataclasses.field(default_factory=list)
    last: Mapping[Phase, Sums] = dataclasses.field(default_factory=dict)
    strays: np.ndarray | None = None
    examples: SeenExamples = dataclasses.field(default_factory=SeenExamples)

    def before(self, phase: Phase) -> Sums | None:
        """Returns what the step before recorded, in a phase, of the tensors that both runs have; None if nothing."""
        return self.pairing.of(self.last[phase], self.side) if phase in self.last else None

    def left(self) -> np.ndarray:
        """Returns the strays of the tensors that both runs have; zeros where there are none."""
        places = self.pairing.places[self.side]
        return np.zeros((len(places), PROJECTIONS)) if self.strays is None else np.nan_to_num(self.strays[places])

    def note(self, step: RunStep) -> None:
        """Notes what a step was given, before it is judged."""
        if step.number < 0 or len(self.rates) >= MOST_REMEMBERED:
            return
        self.rates.append(step.scalars.get("lr", float("nan")))
        own = None if step.rows is None else own_rows(step.rows)
        self.digests.append(digest_of(own))
        self.examples.add(own or ())

    def end(self, step: RunStep) -> None:
        """Notes what a step did, after it was judged."""
        self.usual_passes, self.last = max(self.usual_passes, step.passes), step.sums or {}
        for phase in ("gradient", "stray"):  # gradients that an update used, and those that it did not
            if phase in self.last:
                left = self.last[phase].projections
                self.strays = left if self.strays is None else np.where(np.isnan(left), self.strays, left)


def _places(examples: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bytes of the table, and the bits in them, that belong to examples."""
    places = np.fromiter(examples, np.uint64, len(examples)) & np.uint64(2**_BITS - 1)
    return places >> np.uint64(3), np.uint8(1) << (places & np.uint64(7)).astype(np.uint8)

"""Handles special weights: zeros that only rounding moves, weights that do not exist yet, and those at a run's end."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from samestep.common.judging.recorded.differences import ComparedTensors, RoundingScale, apart_of, finite
from samestep.common.judging.recorded.hashes import comparable
from samestep.common.steps.record import FOLLOWER, UPDATED, RecordedTensor
from samestep.common.steps.recorded_run import RecordedRun, RunStep, Sums

_LAST = (
    "the script of {} wrote weights after its last step, as a run does that ends with averaged or with its best weights, "
    "and {} goes on: the weights right after the update are compared"
)
_EARLIER = (
    "running statistics differ after a step and are the same after the next one, or a step ahead: one of the two calls its model "
    "between the two steps, without gradients, and the other within the next step"
)


def as_trained(
    runs: tuple[RecordedRun, RecordedRun],
    steps: tuple[RunStep, RunStep],
    further: tuple[RunStep | None, RunStep | None],
    asides: dict[str, None],
) -> tuple[RunStep, RunStep]:
    """Returns the comparable part of a step, without weights that one script writes at its end while the other one continues.

    Args:
        runs: A and B.
        steps: A's step and B's.
        further: The steps after them; None where a run has ended.
        asides: Notes on the verdict; receives one if such weights were left out.
    """
    one, other = comparable((runs[0].header, runs[1].header), *steps, asides)
    steps = _restored(runs[0], one, further[0]), _restored(runs[1], other, further[1])
    side = int(further[0] is not None)
    sums, others = (steps[each].sums or {} for each in (side, 1 - side))
    if further.count(None) != 1 or UPDATED not in sums or UPDATED in others:
        return steps
    asides[_LAST.format(*("BA" if side else "AB"))] = None
    ended = _as_updated(runs[side], steps[side])
    return (steps[0], ended) if side else (ended, steps[1])


def _restored(run: RecordedRun, step: RunStep, following: RunStep | None) -> RunStep:
    """Returns a step without what its script wrote after the update and took back, e.g. averages swapped in for evaluation."""
    is_restored = following is not None and following.counts.get("restored") and step.sums
    return _as_updated(run, step) if is_restored else step


def _as_updated(run: RecordedRun, step: RunStep) -> RunStep:
    """Returns a step with the weights right after its update, or none if those were not recorded; followers are left alone."""
    sums = dict(step.sums or {})
    weight, updated = sums.pop("weight", None), sums.pop(UPDATED, None)
    if weight is not None and updated is not None:
        sums["weight"] = weight.where(np.array([each.role == FOLLOWER for each in run.tensors]), updated)
    return dataclasses.replace(step, sums=sums)


class MovedStatistics:
    """Finds running statistics that one run moves between two steps, without gradients, and the other within the next step."""

    def __init__(self, tensors: Sequence[RecordedTensor]) -> None:
        """Starts without any such statistics.

        Args:
            tensors: The tensors that are compared.
        """
        self._are_statistics = np.array([each.role == "buffer" for each in tensors], bool)
        self._met_again = np.zeros(len(tensors), bool)

    def known(self, differs: np.ndarray) -> np.ndarray:
        """Returns which differing tensors count as equal after the last recorded step: those that once agreed a step later.

        Args:
            differs: Which tensors differ.
        """
        return differs & self._met_again

    def found(
        self,
        sums: tuple[tuple[Sums, Sums], tuple[Sums, Sums]],
        apart: np.ndarray,
        differs: np.ndarray,
        scale: RoundingScale,
        asides: dict[str, None],
    ) -> np.ndarray:
        """Returns which statistics agree after the next step, or are in one run now what they are in the other after that step.

        Args:
            sums: The sums of A and of B: after this step, and after the next one.
            apart: How far they are apart now.
            differs: Which tensors differ now.
            scale: The rounding of the next step.
            asides: Gets a note if there are any.
        """
        (ours, theirs), (our_next, their_next) = sums
        differs = differs & self._are_statistics
        later, ahead = apart_of(our_next, their_next), np.fmin(apart_of(our_next, theirs), apart_of(ours, their_next))
        # The bound may be guessed.
        meets, is_ahead = (
            differs & (each <= scale.same * scale.rounding) & (each < apart / 10) for each in (later, ahead)
        )
        self._met_again |= meets
        asides |= {_EARLIER: None} if (meets | is_ahead).any() else {}
        return meets | is_ahead


class WeightRounding:
    """How far rounding of the gradients may have moved the weights."""

    def __init__(self, tensors: Sequence[RecordedTensor] = ()) -> None:
        """Starts with the initial weights.

        Args:
            tensors: The tensors, some of which may be averages of others.
        """
        self._followed = _followed(tensors)
        self._last, self._moved, self._turned = -1, np.zeros(1), np.zeros(max(1, len(tensors)))
        self._is_rounded, self._is_pushed = np.zeros(1, bool), np.zeros(1, bool)
        self._before: tuple[Sums, Sums] | None = None

    def scaled(
        self, weights: RoundingScale, step: RunStep, now: tuple[Sums, Sums], gradients: ComparedTensors | None
    ) -> RoundingScale:
        """Returns the scale of the weights after a step; steps since the last recorded one are taken to move them equally far.

        Args:
            weights: The scale so far, which is zero for weights at rest.
            step: A's step.
            now: The weights of both runs.
            gradients: The gradients of both runs; None if they were not recorded.
        """
        if gradients is not None and step.number > self._last:
            moved = step.scalars.get("lr", 0.0) * gradients.scale.rounding
            self._moved, self._last = self._moved + (step.number - self._last) * moved, step.number
            self._turned = self._turned + self._undecided(now, gradients)
        self._before = now
        rounding = np.where(weights.rounding > 0, weights.rounding, self._moved)
        turned = self._turned if self._followed is None else self._turned[self._followed]
        return dataclasses.replace(weights, rounding=np.maximum(rounding, turned))

    def _undecided(self, now: tuple[Sums, Sums], gradients: ComparedTensors) -> np.ndarray:
        """Returns how far both runs have moved the weights whose gradients were never more than rounding."""
        norm = np.nan_to_num(np.fmax(gradients.one.norm, gradients.other.norm))
        self._is_rounded = self._is_rounded | (norm > 0)
        self._is_pushed = self._is_pushed | (norm > gradients.scale.same * gradients.scale.rounding)
        moved = np.add(*map(apart_of, self._before, now)) if self._before else np.zeros(1)
        return np.where(self._is_rounded & ~self._is_pushed, finite(moved), 0.0)


def _followed(tensors: Sequence[RecordedTensor]) -> list[int] | None:
    """Returns the place of the tensor that each tensor averages, or else its own place; None if there are no averages.

    An average is at most as far apart as what it follows.
    """
    if all(each.role != FOLLOWER for each in tensors):
        return None
    own = {(each.name.removeprefix(f"{each.network}."), each.piece.shape): n for n, each in enumerate(tensors)}
    return [
        own.get((each.name.partition(".")[2], each.piece.shape), n) if each.role == FOLLOWER else n
        for n, each in enumerate(tensors)
    ]


@dataclasses.dataclass(frozen=True, eq=False)
class InitialSums:
    """The initial weights of two runs.

    Attributes:
        one: The initial weights of A.
        other: The initial weights of B.
        is_later: Whether each tensor belongs to a network that one of the runs creates after the first step.
    """

    one: Sums
    other: Sums
    is_later: np.ndarray

    def are_unmoved(self, ours: Sums, theirs: Sums) -> np.ndarray:
        """Returns which later tensors have their initial weights in both runs; records hold these before the tensors exist.

        Args:
            ours: A's weights now.
            theirs: B's weights now.
        """
        return self.is_later & (ours.bits == self.one.bits) & (theirs.bits == self.other.bits)

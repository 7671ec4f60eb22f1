"""Weights at rest: those that are zero, which a gradient that cancels but for rounding moves, and those not there yet."""

import dataclasses

import numpy as np

from samestep.common.judging.recorded.differences import RoundingScale
from samestep.common.steps.recorded_run import RunStep, Sums


class Rest:
    """How far rounding of the gradients may have moved the weights."""

    def __init__(self) -> None:
        """Begins with the initial weights."""
        self._last, self._moved = -1, np.zeros(1)

    def scaled(self, weights: RoundingScale, step: RunStep, gradients: RoundingScale) -> RoundingScale:
        """Returns the scale of the weights after a step; the steps since the last one moved them as far as it does.

        Args:
            weights: The scale, by which weights at rest have none.
            step: A's step.
            gradients: The scale of its gradients.
        """
        if step.number > self._last:
            moved = step.scalars.get("lr", 0.0) * gradients.rounding
            self._moved, self._last = self._moved + (step.number - self._last) * moved, step.number
        return dataclasses.replace(weights, rounding=np.where(weights.rounding > 0, weights.rounding, self._moved))


@dataclasses.dataclass(frozen=True, eq=False)
class Begun:
    """The initial weights of two runs.

    Attributes:
        one: A's.
        other: B's.
        is_later: Whether each tensor belongs to a network that either makes after the first step.
    """

    one: Sums
    other: Sums
    is_later: np.ndarray

    def wait(self, ours: Sums, theirs: Sums) -> np.ndarray:
        """Returns which later tensors no step has moved in either: a record has their initial weights before they are made.

        Args:
            ours: A's weights now.
            theirs: B's.
        """
        return self.is_later & (ours.bits == self.one.bits) & (theirs.bits == self.other.bits)

"""How far apart two recorded runs are, and how small a mistake would have been seen."""

import dataclasses
import math

import numpy as np

from samestep.common.judging.recorded.bounds import Bound
from samestep.common.judging.recorded.differences import ComparedTensors, apart_of, finite
from samestep.common.judging.recorded.walk import Walk
from samestep.common.steps.recorded_run import RunStep, Sums

BLIND = 1e-3
"""The relative error of a gradient that a judgement must be able to see."""
SHOWN = 0.03
"""The smallest share of a difference that eight projections show, except with a probability of 1.3e-7. That is for the outer
product of two long vectors, as one example makes it: a projection is then the product of two sums of random signs. For a
difference without such structure, the probability is 7e-12: the sum of squares is chi-squared with 8 degrees of freedom.
(Integrated with 20 million draws, which a test repeats.) Few numbers of equal size are another matter: for one pair of rows in
128, the signs are the same, or opposite, in all eight projections, and differences of such rows may cancel each other. Then
only the loss, the sums of bits and other tensors show the difference."""
KEPT = float(np.finfo(np.float32).eps)
"""How far apart projections may be, relative to a tensor's norm, and still be stored as the same 32-bit numbers."""


@dataclasses.dataclass(eq=False)
class Seen:
    """What a walk over two runs has seen so far.

    Attributes:
        num_steps: The number of steps.
        worst: The largest difference of a tensor, in multiples of what rounding makes.
        first_apart: How far apart the weights were at first, relative to their norm.
        last_apart: How far apart they are now.
        resolution: The smallest relative error of a gradient that the first step would have shown; None if that is not known.
        jump: The number of the first step, the tensor that rounding moves most in it, and the share of its norm by which it does.
            The share comes from reruns of that tensor itself, if there are any.
        off: The largest difference of all: of a loss or a gradient relative to its norm, of weights relative to their last move.
        num_unseen: How many steps lack gradients or weights in one of the records.
        weights: A's weights after the last step.
        looked: The number of steps up to the last one whose tensors were recorded.
        whole: The parameters that are finite before the first step.
        broken: The first step after which one of these is infinite or NaN in both; None if there is none.
        bounds: The bounds to which A and B clip their gradients.
    """

    num_steps: int = 0
    worst: float = 0.0
    first_apart: float = 0.0
    last_apart: float = 0.0
    resolution: float | None = None
    jump: tuple[int, str, float] = (0, "", 0.0)
    off: float = 0.0
    num_unseen: int = 0
    weights: Sums | None = None
    looked: int = 0
    whole: np.ndarray | None = None
    broken: int | None = None
    bounds: tuple[Bound, Bound] = dataclasses.field(default_factory=lambda: (Bound(), Bound()))

    @property
    def hidden(self) -> float:
        """The largest relative error between the two runs that would show no larger difference than was seen."""
        return self.off / SHOWN


def look(walk: Walk, one: RunStep, other: RunStep, seen: Seen) -> None:
    """Notes how far the runs are apart, and how small a mistake would have been seen.

    Args:
        walk: The walk over both runs.
        one: A's step.
        other: B's.
        seen: Receives the notes.
    """
    gradient, weight = walk.compare("gradient", one, other), walk.compare("weight", one, other)
    if one.number >= 0:
        seen.off = max(seen.off, _off(walk, one, other, seen.weights))
        seen.num_unseen += gradient is None or weight is None
        for bound, step in zip(seen.bounds, (one, other), strict=True):
            bound.note(step.scalars)
    seen.weights = weight.one if weight is not None else None
    if weight is not None and seen.broken is None:
        are_finite = [np.isfinite(sums.square) | (sums.bits == 0) for sums in (weight.one, weight.other)]
        if seen.whole is None:
            seen.whole = walk.pairing.are_parameters & (are_finite[0] | are_finite[1])
        if not seen.whole.any() or (seen.whole & ~are_finite[0] & ~are_finite[1]).any():
            seen.broken = max(one.number, 0)
    if one.number < 0:
        return
    for compared in (gradient, weight):
        if compared is not None and compared.times.size:
            seen.worst = max(seen.worst, float(compared.times.max()))
    if gradient is not None and seen.resolution is None:
        seen.resolution = resolution_of(gradient)
        seen.jump = (one.number, *_largest_spread(walk, one.number, gradient))
    if weight is not None:
        seen.looked = seen.num_steps
        apart = finite(weight.apart)
        norm = math.sqrt(float(apart @ apart) / (float(finite(weight.one.square).sum()) or 1.0))
        seen.first_apart, seen.last_apart = seen.first_apart or norm, norm


def _largest_spread(walk: Walk, number: int, gradient: ComparedTensors) -> tuple[str, float]:
    """Returns the tensor that rounding moves most, and by what share of its norm; a bias may have the yardstick of its layer."""
    norm = np.nan_to_num(gradient.one.norm)
    spread = walk.yardstick.spreads.get((number, "gradient"), gradient.scale.rounding)
    share = np.where(norm > 0, spread / np.where(norm > 0, norm, 1.0), 0.0)
    place = int(np.argmax(share))
    return walk.pairing.tensors[place].name, float(share[place])


def resolution_of(gradient: ComparedTensors) -> float | None:
    """Returns the smallest relative error of gradients that would be seen; None if no gradient has numbers.

    Args:
        gradient: The gradients of a step.
    """
    known = np.nan_to_num(gradient.one.norm) > 0
    relative = gradient.scale.rounding[known] / gradient.one.norm[known]
    return float(np.median(gradient.scale.same * relative)) if known.any() else None


def _off(walk: Walk, one: RunStep, other: RunStep, before: Sums | None) -> float:
    """Returns the largest relative difference in a step; infinity where it cannot be known.

    Args:
        walk: The walk over both runs.
        one: A's step.
        other: B's.
        before: A's weights before the step; None if they were not recorded.
    """
    found = [0.0]
    if one.loss is None or other.loss is None:
        found = [0.0 if one.loss is other.loss else math.inf]
    elif one.loss != other.loss:
        found = [_relative(abs(one.loss - other.loss), abs(one.loss))]
    for phase in ("gradient", "weight"):
        compared = walk.compare(phase, one, other)
        if compared is None:
            continue
        apart = _at_least(compared)
        if not apart.any():
            continue
        if phase == "gradient":
            sizes = compared.one.norm
        else:
            sizes = np.zeros(len(apart)) if before is None else apart_of(compared.one, before)
        found += [_relative(each, size) for each, size in zip(apart, sizes, strict=True)]
    return max(found)


def _at_least(compared: ComparedTensors) -> np.ndarray:
    """Returns how far apart tensors are; where bits differ but projections do not, the most that their last digit can hide."""
    differs = (compared.one.bits != compared.other.bits) & (compared.apart == 0)
    return np.where(differs, KEPT * finite(compared.one.norm), compared.apart)


def _relative(apart: float, size: float) -> float:
    """Returns a difference divided by a size; infinity unless both are finite and the size is positive."""
    if apart == 0:
        return 0.0
    return float(apart / size) if np.isfinite(apart) and np.isfinite(size) and size > 0 else math.inf

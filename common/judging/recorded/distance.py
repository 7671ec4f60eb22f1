"""How far two recorded runs are apart, and how small a mistake would have been seen."""

import dataclasses
import math

import numpy as np

from samestep.common.judging.recorded.walk import ComparedTensors, Walk
from samestep.common.judging.recorded.yardstick import apart_of, finite
from samestep.common.steps.recorded_run import RunStep, Sums

SHOWN = 0.1
"""The least of a difference that eight projections with random signs show of it, but for one tensor in ten million: the sum of
their squares is chi-squared with 8 degrees of freedom, which is below 8 * 0.1**2 with a chance of 1e-7."""


@dataclasses.dataclass(eq=False)
class Seen:
    """What a walk over two runs has seen so far.

    Attributes:
        num_steps: How many steps.
        worst: The largest difference of a tensor, in multiples of what rounding makes.
        first_apart: How far the weights were apart at first, relative to their norm.
        last_apart: How far they are now.
        resolution: The smallest relative error of a gradient that the first step would have shown; None if that is not known.
        jump: Of the first step its number, the tensor that rounding moves most, and by what share of its norm.
        off: The largest difference of all: of a loss or a gradient relative to its norm, of weights relative to their last move.
        weights: A's, after the last step.
    """

    num_steps: int = 0
    worst: float = 0.0
    first_apart: float = 0.0
    last_apart: float = 0.0
    resolution: float | None = None
    jump: tuple[int, str, float] = (0, "", 0.0)
    off: float = 0.0
    weights: Sums | None = None

    @property
    def hidden(self) -> float:
        """The largest relative error that may be between the two without more of a difference than there is."""
        return self.off / SHOWN


def look(walk: Walk, one: RunStep, other: RunStep, seen: Seen) -> None:
    """Notes how far the runs are apart, and how small a mistake would have been seen.

    Args:
        walk: Over both runs.
        one: A's step.
        other: B's.
        seen: Gets it.
    """
    gradient, weight = walk.compare("gradient", one, other), walk.compare("weight", one, other)
    if one.number >= 0:
        seen.off = max(seen.off, _off(walk, one, other, seen.weights))
    seen.weights = weight.one if weight is not None else None
    if one.number < 0:
        return
    for compared in (gradient, weight):
        if compared is not None and compared.times.size:
            seen.worst = max(seen.worst, float(compared.times.max()))
    if gradient is not None and seen.resolution is None:
        seen.resolution = _resolution(gradient)
        seen.jump = (one.number, *_largest_spread(walk, gradient))
    if weight is not None:
        apart = finite(weight.apart)
        norm = math.sqrt(float(apart @ apart) / (float(finite(weight.one.square).sum()) or 1.0))
        seen.first_apart, seen.last_apart = seen.first_apart or norm, norm


def _largest_spread(walk: Walk, gradient: ComparedTensors) -> tuple[str, float]:
    """Returns the tensor that rounding moves most, and by what share of its norm."""
    norm = np.nan_to_num(gradient.one.norm)
    share = np.where(norm > 0, gradient.scale.rounding / np.where(norm > 0, norm, 1.0), 0.0)
    place = int(np.argmax(share))
    return walk.pairing.tensors[place].name, float(share[place])


def _resolution(gradient: ComparedTensors) -> float | None:
    known = np.nan_to_num(gradient.one.norm) > 0
    relative = gradient.scale.rounding[known] / gradient.one.norm[known]
    return float(np.median(gradient.scale.same * relative)) if known.any() else None


def _off(walk: Walk, one: RunStep, other: RunStep, before: Sums | None) -> float:
    """Returns the largest relative difference in a step; infinite where it cannot be known.

    Args:
        walk: Over both runs.
        one: A's step.
        other: B's.
        before: A's weights before it; None if they were not looked at.
    """
    losses = one.loss, other.loss
    found = [0.0 if losses[0] == losses[1] or None in losses else _relative(abs(one.loss - other.loss), abs(one.loss))]
    for phase in ("gradient", "weight"):
        compared = walk.compare(phase, one, other)
        if compared is None or not compared.apart.any():
            continue
        if phase == "gradient":
            sizes = compared.one.norm
        else:
            sizes = np.zeros(len(compared.apart)) if before is None else apart_of(compared.one, before)
        found += [_relative(apart, size) for apart, size in zip(compared.apart, sizes, strict=True)]
    return max(found)


def _relative(apart: float, size: float) -> float:
    """Returns a difference over a size; infinite unless both are numbers and the size is more than nothing."""
    if apart == 0:
        return 0.0
    return float(apart / size) if np.isfinite(apart) and np.isfinite(size) and size > 0 else math.inf

"""How far two recorded runs are apart, and how small a mistake would have been seen."""

import dataclasses
import math

import numpy as np

from samestep.common.judging.recorded.walk import ComparedTensors, Walk
from samestep.common.judging.recorded.yardstick import finite
from samestep.common.steps.recorded_run import RunStep


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
    """

    num_steps: int = 0
    worst: float = 0.0
    first_apart: float = 0.0
    last_apart: float = 0.0
    resolution: float | None = None
    jump: tuple[int, str, float] = (0, "", 0.0)


def look(walk: Walk, one: RunStep, other: RunStep, seen: Seen) -> None:
    """Notes how far the runs are apart, and how small a mistake would have been seen.

    Args:
        walk: Over both runs.
        one: A's step.
        other: B's.
        seen: Gets it.
    """
    gradient, weight = walk.compare("gradient", one, other), walk.compare("weight", one, other)
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

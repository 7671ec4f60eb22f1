"""The moves of parameters at the step that differs, as mistakes of updates ask for them."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from samestep.common.mistakes.evidence import Evidence, SeenTensor, length
from samestep.common.mistakes.mistake import few

PROOF = 14.0
"""From which logarithm of a likelihood on moves are whole numbers of learning rates by no chance: one in a million others is."""
_AGAINST = -7.0
"""Below which a single tensor says that its moves are none."""
_OUTLIERS = 0.1
"""The share of projections that are off a whole number for another reason, as where a gradient is nearly zero."""
_SCALES = (5.0, 1.0, 0.2, 0.03)
"""Of what rounding and epsilon move a projection by: how many gradients are nearly zero is a guess, and bounds are high."""
_FEW, _SHORT = 4, 0.5
"""Fewer numbers, or projections of a smaller mean square, are near whole numbers whatever they are."""


def parameters(evidence: Evidence) -> list[SeenTensor]:
    """Returns the moves of all parameters."""
    return [each for each in evidence.moves if each.role == "parameter"]


def differing(evidence: Evidence) -> list[SeenTensor]:
    """Returns those that differ."""
    return [each for each in parameters(evidence) if each.differs]


def driven(evidence: Evidence) -> list[SeenTensor]:
    """Returns those of parameters that moved in either run."""
    return [each for each in parameters(evidence) if each.one.any() or each.other.any()]


def names_of(seen: Sequence[SeenTensor], every: Sequence[SeenTensor]) -> str:
    """Returns the names of tensors, of many the first ones.

    Args:
        seen: Which.
        every: All that there are.
    """
    if len(seen) == len(every):
        return "all parameters"
    return few([each.name for each in seen])


def like_signs(
    seen: Sequence[tuple[SeenTensor, SeenTensor]],
    of: str,
    groups: Sequence[Mapping[str, float]],
    first: tuple[float, float],
) -> float:
    """Returns the logarithm of how much likelier moves are so many times the signs of the gradients than any others.

    The projections of signs are whole numbers. Those of other moves are as often near one as not: then this is above a number x
    with a probability of exp(-x) at most, since what is tried of a tensor is averaged, and not chosen.

    Args:
        seen: Each move with its gradient.
        of: "one" for A's moves, "other" for B's.
        groups: The hyper-parameters of each group of parameters.
        first: How many times the learning rate a sign moves a number, and the size of gradients that move it half as far.
    """
    total, slope = 0.0, 0.0
    for move, gradient in seen:
        found = [*_tried(move, gradient, getattr(move, of), groups, first)]
        best = max(found, default=-math.inf)
        if best == -math.inf:
            return -math.inf
        likely = best + math.log(sum(math.exp(each - best) for each in found) / len(found))
        if likely < _AGAINST:
            return -math.inf
        total += likely
        slope -= float(getattr(move, of) @ gradient.other) / (
            length(getattr(move, of)) * length(gradient.other) or math.inf
        )
    return total if slope > 0 else -math.inf


def _tried(
    move: SeenTensor,
    gradient: SeenTensor,
    moved: np.ndarray,
    groups: Sequence[Mapping[str, float]],
    first: tuple[float, float],
) -> Iterator[float]:
    """Yields how likely a move is, for each group that the tensor may be in, with weight decay and without."""
    norm, (factor, epsilon) = length(gradient.other), first
    blur = (
        math.sqrt(0.8 * move.size**1.5 * epsilon / norm) if norm else math.inf
    )  # of gradients that are normally distributed
    for group in groups:
        unit, decay = group.get("lr", 0.0) * factor, group.get("lr", 0.0) * group.get("weight_decay", 0.0)
        for taken in (decay, 0.0) if unit else ():
            signs = -(moved + taken * move.before) / unit  # type: ignore[operator]
            is_long = length(signs) > 2 * math.sqrt(move.size)
            for scale in _SCALES:
                spread = scale * math.hypot(move.rounding / unit, blur)
                yield -math.inf if is_long else _near_whole(signs, spread) if move.size >= _FEW else 0.0


def _near_whole(numbers: np.ndarray, deviation: float) -> float:
    """Returns the logarithm of how much likelier numbers are whole ones, but for a deviation, than any others."""
    if float(np.mean(numbers**2)) < _SHORT or not deviation < 1:
        return 0.0
    deviation = max(deviation, 0.01)
    off = (numbers - np.round(numbers))[:, None] + np.arange(-3, 4)
    density = np.exp(-((off / deviation) ** 2) / 2).sum(1) / (deviation * math.sqrt(2 * math.pi))
    return float(np.log(_OUTLIERS + (1 - _OUTLIERS) * density).sum())

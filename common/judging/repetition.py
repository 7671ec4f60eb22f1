"""Judges whether two runs of the same request took the same steps: bit for bit, or as far as rounding allows."""

import dataclasses
import math
from collections.abc import Sequence

from samestep.common.judging.parity import LOSS_BOUND, deviation

EQUAL, ROUNDED, CHANGED = "bit-equal", "equal but for rounding", "changed"


@dataclasses.dataclass(frozen=True)
class Repetition:
    """How the losses of two runs compare.

    Attributes:
        verdict: "bit-equal"; "equal but for rounding", which stays within the bounds of parity; or "changed".
        steps: How many steps were compared: those that both runs took.
        step: The first step whose losses differ; the first whose losses differ by more than the bound, if there is one. None if
            all losses are equal.
        now: The later run's loss there.
        then: The earlier run's loss there.
        deviation: How far apart they are there, relative to the earlier one (in float32 to at least 0.1).
        allowed: The bound on the deviation.
    """

    verdict: str
    steps: int
    step: int | None
    now: float | None
    then: float | None
    deviation: float | None
    allowed: float


def compare_losses(dtype: str, first_step: int, now: Sequence[float], then: Sequence[float]) -> Repetition:
    """Compares the losses of a run with those of an earlier one that began at the same step.

    Args:
        dtype: The dtype of both runs; it sets the bound.
        first_step: The number of the first loss.
        now: The losses of the later run, one per step.
        then: The losses of the earlier one.
    """
    steps, bound = min(len(now), len(then)), LOSS_BOUND[dtype]
    pairs = list(zip(now, then, strict=False))
    differing = [index for index, (later, earlier) in enumerate(pairs) if later != earlier]
    beyond = [index for index in differing if not deviation(*pairs[index], dtype) <= bound]
    if not differing:
        return Repetition(EQUAL, steps, None, None, None, None, bound)
    index = (beyond or differing)[0]
    apart = deviation(*pairs[index], dtype)
    return Repetition(
        CHANGED if beyond else ROUNDED,
        steps,
        first_step + index,
        *pairs[index],
        apart if math.isfinite(apart) else None,
        bound,
    )

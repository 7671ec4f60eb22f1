"""Gradients that were rounded to a dtype of few digits, as shown by their bits and by the size of the error."""

import dataclasses
import math
from collections.abc import Sequence

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import Words
from samestep.common.mistakes.seen_tensor import SeenTensor, common_ratio
from samestep.common.steps.gradient_transforms import CLIP_VALUE


@dataclasses.dataclass(frozen=True)
class FewDigits:
    """A dtype of few digits.

    Attributes:
        digits: How many binary digits it has after the first.
        fewer: How many the next narrower dtype has.
        least: The smallest relative error of a tensor whose numbers were rounded to it.
        most: The largest relative error of such a tensor.
        middle: The smallest median of the errors of all tensors, if they were rounded once.
        narrower: The median above which the numbers were rounded to the next narrower dtype.
        summed: The largest median if parts that cancel each other were rounded, and summed in few digits.
    """

    digits: int
    fewer: int
    least: float
    most: float
    middle: float
    narrower: float
    summed: float


BF16 = FewDigits(7, 3, 3e-4, 3e-3, 7e-4, 1.2e-2, 9e-2)
FP16 = FewDigits(10, 7, 3e-5, 3e-4, 3e-5, 7e-4, 7e-4)
"""Rounding to d digits after the first errs by 0.2 x 2^-d of the norm: 1.6e-3 in bfloat16, 2e-4 in float16, 2.5e-2 in float8.
Sums in few digits err by two to four times as much, and by more if parts cancel. A larger error is not attributed to float16,
since five times a bfloat16 number has as many digits."""
FACTOR_DIGITS = 3
"""The most digits that numbers gain when they are multiplied by a small whole number: two by 3, three by 5 and 7."""
PARTS = 4
"""The number of parts, each rounded separately, whose mean errs by half as much as one part; that is within `middle`."""


def rounded(to: FewDigits, evidence: Evidence) -> Words | None:
    """Checks that every gradient is off as rounding to few digits would make it, by its digits or by the size of its error.

    Args:
        to: The dtype of few digits.
        evidence: The evidence of the step.
    """
    own = [each for each in evidence.gradients if each.size >= 8 and each.norm > each.rounding * each.bound]
    if len(own) < 2 or common_ratio(own) is not None:
        return None
    offs = sorted(each.off for each in own)
    middle = offs[len(offs) // 2]
    is_changed = _changes_after_rounding(evidence)
    if all(each.digits for each in own):
        if _has_few(to, own, middle, is_changed):
            return {"off": f"{middle:.1e}", "or_else": ""}
        if not is_changed or _most_digits(own)[0] <= FP16.digits:
            return None
    noise = [each.off for each in own if common_ratio([each]) is None]
    inside = sum(to.least <= off <= to.most for off in noise)
    parts = max(side.world * side.passes for side in (evidence.a, evidence.b))
    least = max(to.least, to.middle * math.sqrt(PARTS / max(PARTS, parts)))
    is_even = inside >= 0.8 * len(offs) and least <= middle <= to.most
    # Clipping by value hides a factor from the numbers at the limit, so the difference has no direction either.
    has_limits = any(CLIP_VALUE in side.scalars for side in (evidence.a, evidence.b))
    if not is_even or has_limits or not all(each.differs for each in own):
        return None
    return {"off": f"{middle:.1e}", "or_else": ", or something added noise of that size"}


def _has_few(to: FewDigits, seen: Sequence[SeenTensor], middle: float, is_changed: bool) -> bool:
    """Returns whether one run's gradients have few digits, the other's have more, and the error fits such rounding.

    Digits alone do not show it: numbers that are multiplied after rounding have some more.
    """
    few, more = _most_digits(seen)
    if not to.fewer < few <= to.digits + FACTOR_DIGITS < more and not to.fewer < few <= to.digits < more:
        return False
    if few <= to.digits:
        return to.least <= middle <= (to.summed if few == to.digits and is_changed else to.narrower)
    may_be_wider = is_changed and few == to.digits + FACTOR_DIGITS  # summed in few digits
    return not may_be_wider and to.middle <= middle <= to.most


def _most_digits(seen: Sequence[SeenTensor]) -> list[int]:
    """Returns the most digits that any gradient has in each run, the run with fewer first."""
    return sorted(max(each.digits[side] for each in seen) for side in (0, 1))  # type: ignore[index]


def _changes_after_rounding(evidence: Evidence) -> bool:
    """Returns whether gradients are summed, divided or clipped after they may have been rounded, which adds digits."""
    return evidence.is_transformed or any(side.world * side.passes > 1 for side in (evidence.a, evidence.b))

"""Gradients that were rounded to a dtype of few digits, as their bits and the size of the error show."""

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
        least: The least relative error of a tensor whose numbers were rounded to it.
        most: The largest.
        middle: The least that the median of all tensors has, where they were rounded once.
        narrower: From which median on it was the next narrower dtype.
        summed: The largest median where parts that cancel each other were rounded, and summed in few digits.
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
Sums in few digits err by two to four times as much, and more where parts cancel. A larger error is not taken for float16, since
bfloat16 times five has as many digits."""
FACTOR_DIGITS = 3
"""Digits that numbers get when they are multiplied by a small whole number: by 3 two, by 5 and 7 three."""
PARTS = 4
"""The mean of this many parts, each rounded on its own, errs by half as much as one part; that is within `middle`."""


def rounded(to: FewDigits, evidence: Evidence) -> Words | None:
    """Checks that every gradient is off as rounding to few digits makes it, in its digits or in the size of its error.

    Args:
        to: What they were rounded to.
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
    # Of numbers that are clipped a factor moves only those below the limit, and has no direction either.
    has_limits = any(CLIP_VALUE in side.scalars for side in (evidence.a, evidence.b))
    if not is_even or has_limits or not all(each.differs for each in own):
        return None
    return {"off": f"{middle:.1e}", "or_else": ", or something added noise of that size"}


def _has_few(to: FewDigits, seen: Sequence[SeenTensor], middle: float, is_changed: bool) -> bool:
    """Returns whether gradients of one of the two have few digits, those of the other more, and the error is of such rounding.

    Digits alone do not say it: what is multiplied after it was rounded has some more.
    """
    few, more = _most_digits(seen)
    if not to.fewer < few <= to.digits + FACTOR_DIGITS < more and not to.fewer < few <= to.digits < more:
        return False
    if few <= to.digits:
        return to.least <= middle <= (to.summed if few == to.digits and is_changed else to.narrower)
    may_be_wider = is_changed and few == to.digits + FACTOR_DIGITS  # summed in few digits
    return not may_be_wider and to.middle <= middle <= to.most


def _most_digits(seen: Sequence[SeenTensor]) -> list[int]:
    """Returns the most digits that any gradient of a run has: of the run with fewer first."""
    return sorted(max(each.digits[side] for each in seen) for side in (0, 1))  # type: ignore[index]


def _changes_after_rounding(evidence: Evidence) -> bool:
    """Returns whether gradients are summed, divided or clipped after they may have been rounded, which fills their digits up."""
    return evidence.is_transformed or any(side.world * side.passes > 1 for side in (evidence.a, evidence.b))

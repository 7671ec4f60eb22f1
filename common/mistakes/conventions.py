"""What Keras and PyTorch compute differently from the same gradients and the same settings of an optimizer."""

import math

import numpy as np

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.formulas import betas_of, corrections, steps_taken
from samestep.common.mistakes.mistake import Mistake, Words, names_of, near
from samestep.common.mistakes.seen_tensor import SeenTensor, blur_of, common_ratio, differing, length
from samestep.common.steps.gradient_transforms import EPSILON_BEFORE, GRADIENT_ROWS

_EPSILON = "Keras' Adam adds epsilon before the bias correction, and PyTorch's afterwards"
_MOST_BLUR = 4.0
"""How many times the effect of epsilon on normally distributed gradients a difference may be: one of them may be nearly zero."""
_MOST_SHARE = 0.15
"""The largest share of a move that epsilon may make up and still be told from other causes."""
_AGAINST = -0.7
"""The cosine below which a larger epsilon, which shortens moves, cannot be the cause, as eight projections show it."""


def _rate_in_velocity(evidence: Evidence) -> Words | None:
    """Checks that B's moves beyond the gradient are A's, times the rate of this step over that of the step before."""
    gradients, (*_, before, rate) = {each.name: each for each in evidence.gradients}, (0.0, 0.0, *evidence.a.rates)
    momentum, is_nesterov = (evidence.a.scalars.get(name, 0.0) for name in ("momentum", "nesterov"))
    if not momentum or not before or near(rate / before, 1.0) or not differing(evidence.driven):
        return None
    for each in evidence.driven:
        taken = (
            rate * (1 + momentum * bool(is_nesterov)) * (gradients[each.name].one if each.name in gradients else 0.0)
        )
        if not each.made_by((rate / before - 1) * (each.one + taken)):
            return None
    return {"before": f"{before:.6g}", "rate": f"{rate:.6g}"}


def _epsilon(evidence: Evidence) -> tuple[float, float] | None:
    """Returns A's epsilon as it acts in the first step, and B's; None unless only A adds it before the bias correction.

    Epsilon acts most in the first step, so if that step shows nothing, no later one does.
    """
    betas, sides = betas_of(evidence), (evidence.a.scalars, evidence.b.scalars)
    is_early = [bool(each.get(EPSILON_BEFORE)) for each in sides]
    if betas is None or is_early != [True, False] or steps_taken(evidence) > 1:
        return None
    ours, theirs = (each.get("eps", 0.0) for each in sides)
    return ours / corrections(betas, 1)[1], theirs


def _beyond_epsilon(evidence: Evidence) -> list[SeenTensor]:
    """Returns the moves that differ by more, or in another direction, than the place where epsilon is added explains."""
    apart, found = differing(evidence.driven), _epsilon(evidence)
    gradients = {each.name: each for each in evidence.gradients}
    if found is None:
        return apart
    more, rate = found[0] - found[1], evidence.a.scalars.get("lr", 0.0)

    def is_so(move: SeenTensor) -> bool:
        made, off = rate * blur_of(gradients[move.name], abs(more)), move.other - move.one
        if length(off) > _MOST_BLUR * made + move.bound * move.rounding or not 0 < made <= _MOST_SHARE * move.norm:
            return False
        cosine = float(np.mean(move.one * off)) / (move.norm * length(off))
        return math.copysign(cosine, more * cosine) > _AGAINST

    return [each for each in apart if each.name not in gradients or not is_so(each)]


def _epsilon_before_correction(evidence: Evidence) -> Words | None:
    """Checks that A adds epsilon before the bias correction and B afterwards, and that no move differs by more than that."""
    found, apart = _epsilon(evidence), differing(evidence.driven)
    if found is None or not apart or common_ratio(apart) is not None or _beyond_epsilon(evidence):
        return None
    return {"written": f"{evidence.a.scalars['eps']:g}", "acts": f"{found[0]:.3g}"}


def _rows_squared_alone(evidence: Evidence) -> Words | None:
    """Checks that B's optimizer, which keeps a mean of squares, gets the gradients of tables as rows, and A's gets their sums."""
    in_rows, apart = evidence.counts(GRADIENT_ROWS), _beyond_epsilon(evidence.swapped())
    has_squares = any(name in evidence.b.scalars for name in ("betas.1", "rho", "alpha"))
    are_tables = all(len(each.shape) > 1 and each.one.any() and each.other.any() for each in apart)
    if not has_squares or not 0 < len(apart) <= in_rows[1] or in_rows[0] or not are_tables:
        return None
    has_more = len(apart) < len(differing(evidence.driven))
    return {"names": names_of(apart), "more": f"; {_EPSILON}, which explains the other differences" if has_more else ""}


CONVENTIONS = (
    Mistake(
        "rate_in_velocity",
        ("update",),
        _rate_in_velocity,
        "the gradients are the same, and the learning rate goes from {before} to {rate}: the velocity of {a} holds the rates of "
        "earlier steps, as that of Keras' SGD does, and {b} multiplies all of its velocity by the current rate, as PyTorch's SGD "
        "does",
        "pytorch/pytorch#1099",
    ),
    Mistake(
        "rows_squared_alone",
        ("update",),
        _rows_squared_alone,
        "the gradients are the same, but {b}'s optimizer is given those of {names} as rows, one for each look-up, and "
        "{a}'s is not: Keras' optimizers square each row, and not their sum, so rows that a batch looks up several times "
        "move differently{more}",
    ),
    Mistake(
        "epsilon_before_correction",
        ("update",),
        _epsilon_before_correction,
        "the gradients are the same, and the updates differ by about the effect of epsilon: {a} has Keras' Adam, which adds it "
        "before the bias correction, so {written} acts as {acts} in the first step, and {b}'s adds it afterwards; this hides "
        "smaller differences",
    ),
)

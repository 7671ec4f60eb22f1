"""Mistakes of optimizers that take turns, as in a GAN: a wrong turn, and gradients that a `detach` should stop."""

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.gradient_arithmetic import GRADIENTS
from samestep.common.mistakes.mistake import Mistake, Words, few
from samestep.common.mistakes.seen_tensor import differing
from samestep.common.steps.gradient_transforms import GRADIENT_PHASES


def trained_apart(evidence: Evidence) -> tuple[list[str], list[str]] | None:
    """Returns the parameters that A and B train at the step; None if they have some in common, or that is not known.

    Args:
        evidence: The evidence of the step.
    """
    ours = [*(each.name for each in evidence.gradients if each.one.any()), *evidence.a.trained_alone]
    theirs = [*(each.name for each in evidence.gradients if each.other.any()), *evidence.b.trained_alone]
    return None if not ours or not theirs or {*ours} & {*theirs} else (ours, theirs)


def _other_turn(evidence: Evidence) -> Words | None:
    """The two update different parameters, and only one of them updates those that both updated a step before."""
    apart = trained_apart(evidence)
    before = [each.name for each in evidence.gradients if each.earlier is not None and each.earlier.any()]
    is_of_both = not (evidence.a.trained_alone or evidence.b.trained_alone)  # else one goes on with a network made anew
    if apart is None or before not in apart or not is_of_both:
        return None
    return {"step": str(evidence.step), "one": few(apart[0]), "other": few(apart[1])}


def _added(evidence: Evidence) -> Words | None:
    """B's gradients are A's, and what steps before left there is added."""
    apart = differing(evidence.gradients)
    is_that = (not each.differs if each.strays is None else each.made_by(each.strays[1]) for each in evidence.gradients)
    return {"count": str(len(apart)), "total": str(len(evidence.gradients))} if apart and all(is_that) else None


STRAYS = (
    Mistake(
        "stray_gradients",
        GRADIENT_PHASES,
        _added,
        "{count} of {total} gradients of {b} are {a}'s plus what the backward pass of an earlier step left there, one "
        "that updated other parameters: a `detach` is missing, or a `zero_grad` before this step's pass",
        has_sides=True,
    ),
)
TURNS = (
    Mistake(
        "other_turn",
        ("data", "hyper-parameters", *GRADIENTS),
        _other_turn,
        "step {step} updates {one} in A, and {other} in B: their optimizers take turns, and one of the two switches "
        "at another step",
    ),
)

"""Gradients that a backward pass left where its step updated nothing, as in a GAN without `detach`."""

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import Mistake, Words
from samestep.common.steps.gradient_transforms import GRADIENT_PHASES


def _added(evidence: Evidence) -> Words | None:
    """B's gradients are A's, and what steps before left there is added."""
    differing = [each for each in evidence.gradients if each.differs]
    if not differing or any(each.strays is None for each in differing):
        return None
    for each in evidence.gradients:
        if not each.explained_by(1.0, 0.0 if each.strays is None else each.strays[1]):
            return None
    return {"count": str(len(differing)), "total": str(len(evidence.gradients))}


STRAYS = (
    Mistake(
        "stray_gradients",
        GRADIENT_PHASES,
        _added,
        "{count} of {total} gradients of B are A's plus what the backward pass of an earlier step left there, one "
        "that updated other parameters: a `detach` is missing, and nothing set the gradients to zero",
        "",
        has_sides=True,
    ),
)

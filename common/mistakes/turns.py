"""Optimizers that update different parameters and take turns, as those of a GAN do."""

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.gradient_arithmetic import GRADIENTS
from samestep.common.mistakes.mistake import Mistake, Words, few


def _other_turn(evidence: Evidence) -> Words | None:
    """The two update different parameters, and only one of them updates those that both updated a step before."""
    seen = evidence.gradients
    ours, theirs = [each.name for each in seen if each.one.any()], [each.name for each in seen if each.other.any()]
    before = [each.name for each in seen if each.earlier is not None and each.earlier.any()]
    if not ours or not theirs or {*ours} & {*theirs} or before not in (ours, theirs):
        return None
    return {"step": str(evidence.step), "a": few(ours), "b": few(theirs)}


TURNS = (
    Mistake(
        "other_turn",
        ("data", "hyper-parameters", *GRADIENTS),
        _other_turn,
        "step {step} updates {a} in A, and {b} in B: their optimizers take turns, and one of the two switches at another step",
        "",
    ),
)

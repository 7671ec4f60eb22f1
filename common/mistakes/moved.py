"""The moves of parameters at the step that differs, as mistakes of updates ask for them."""

from collections.abc import Sequence

from samestep.common.mistakes.evidence import Evidence, SeenTensor
from samestep.common.mistakes.mistake import few


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

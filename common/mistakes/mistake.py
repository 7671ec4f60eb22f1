"""A known mistake, and the arithmetic that recognizes it."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from samestep.common.errors import name_some
from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.seen_tensor import SeenTensor

Words = dict[str, str]
"""The values for the placeholders in the sentence of a mistake."""
Arithmetic = Callable[[Evidence], Words | None]
"""A pure function that returns the words of the sentence if a step differs as the mistake would make it, and otherwise None."""

NEAR = 2e-4
"""The relative distance up to which a measured ratio counts as a given number."""


@dataclasses.dataclass(frozen=True)
class Mistake:
    """One way in which a script is silently wrong.

    Attributes:
        name: The name of the mistake, which is also that of the oracle's mutant if there is one.
        phases: The phases in which two runs with this mistake may first differ.
        arithmetic: Checks whether a step shows the mistake.
        sentence: The sentence that names it, with placeholders: `{a}` and `{b}` for the two runs if it is a mistake of B.
        thread: The thread in which it was reported, as owner/repository#number; "" if no thread is known.
        of_step: A sentence about a step that the oracle took with this mistake, in which `{devices}` stands for the number of
            devices; "" if there is no such mutant.
    """

    name: str
    phases: tuple[str, ...]
    arithmetic: Arithmetic
    sentence: str
    thread: str = ""
    of_step: str = ""

    @property
    def has_sides(self) -> bool:
        """Whether it is a mistake of B, and so is tried with A and B swapped as well."""
        return "{a}" in self.sentence or "{b}" in self.sentence


def spell(ratio: float) -> str:
    """Spells a ratio with enough digits to show that it is not 1, or with three if it is small."""
    if 0 < abs(ratio) < 0.01:
        return f"{ratio:.3g}"
    near = abs(ratio - 1)
    digits = 3 if near >= 0.01 or near == 0 else 5 if near >= 5e-5 else 8
    return f"{ratio:.{digits}f}"


def of_norm(share: float, digits: int = 2) -> str:
    """Spells the size of a difference relative to a norm.

    Args:
        share: The difference as a multiple of the norm.
        digits: The number of digits; a share near 1 gets as many as show that it is not 1.
    """
    text = f"{share:.{digits}g}"
    return f"{text if share == 1 or text != '1' else spell(share)} {'of' if share < 1 else 'times'} its norm"


def few(words: Sequence[str]) -> str:
    """Joins words with commas; if there are many, only the first three."""
    return name_some(words, 3)


def names_of(seen: Sequence[SeenTensor], every: Sequence[SeenTensor] = ()) -> str:
    """Returns the names of tensors; if there are many, only the first ones.

    Args:
        seen: The tensors.
        every: All parameters, if the names may be replaced by "all parameters".
    """
    return "all parameters" if len(seen) == len(every) else few([each.name for each in seen])


def near(ratio: float, number: float) -> bool:
    """Returns whether a measured ratio equals a number within the accuracy of measurement.

    Args:
        ratio: The measured ratio.
        number: The number that it may be.
    """
    return math.isfinite(ratio) and abs(ratio - number) <= NEAR * abs(number)

"""A known mistake, and what makes its name."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from samestep.common.errors import name_some
from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.seen_tensor import SeenTensor

Words = dict[str, str]
"""What the sentence of a mistake has in its brackets."""
Arithmetic = Callable[[Evidence], Words | None]
"""Says whether a step differs as a mistake has it; None if not. It is pure."""

NEAR = 2e-4
"""How far a measured ratio may be from a number to be that number, relative to it."""


@dataclasses.dataclass(frozen=True)
class Mistake:
    """One way in which a script is silently wrong.

    Attributes:
        name: That of the oracle's mutant, where there is one.
        phases: Where two runs first differ that differ so.
        arithmetic: Whether they do.
        sentence: What is said of it.
        thread: Where it happened, as owner/repository#number; "" if no thread is known.
        has_sides: Whether it is a mistake of B: then it is tried with A and B in each other's place as well.
        of_step: What is said of a step that the oracle took with this mistake; `{devices}` stands for their number, "" where it
            has no such mutant.
    """

    name: str
    phases: tuple[str, ...]
    arithmetic: Arithmetic
    sentence: str
    thread: str = ""
    has_sides: bool = False
    of_step: str = ""


def spell(ratio: float) -> str:
    """Returns a ratio, to as many digits as it is near to 1, or to three if it is small."""
    if 0 < abs(ratio) < 0.01:
        return f"{ratio:.3g}"
    near = abs(ratio - 1)
    digits = 3 if near >= 0.01 or near == 0 else 5 if near >= 5e-5 else 8
    return f"{ratio:.{digits}f}"


def of_norm(share: float, digits: int = 2) -> str:
    """Spells how large a difference is beside a norm.

    Args:
        share: What part of the norm it is, or how many times the norm.
        digits: How many it is given with; what is near to 1 has as many as show that it is not 1.
    """
    text = f"{share:.{digits}g}"
    return f"{text if share == 1 or text != '1' else spell(share)} {'of' if share < 1 else 'times'} its norm"


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun.

    Args:
        number: How many.
        noun: What there is one of.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def few(words: Sequence[str]) -> str:
    """Returns words with commas between them, of many the first three."""
    return name_some(words, 3)


def names_of(seen: Sequence[SeenTensor], every: Sequence[SeenTensor] = ()) -> str:
    """Returns the names of tensors, of many the first ones.

    Args:
        seen: Which.
        every: All parameters that there are, if those may be meant.
    """
    return "all parameters" if len(seen) == len(every) else few([each.name for each in seen])


def near(ratio: float, number: float) -> bool:
    """Returns whether a measured ratio is a number.

    Args:
        ratio: As measured.
        number: Which it may be.
    """
    return math.isfinite(ratio) and abs(ratio - number) <= NEAR * abs(number)

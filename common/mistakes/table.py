"""The table of known mistakes, and the search for a cause in it."""

import dataclasses
from collections.abc import Iterator, Sequence

from samestep.common.features.batch_norm import mistakes as batch_norm
from samestep.common.mistakes.clipping import CLIPPING, ON_ONE_RANK
from samestep.common.mistakes.conventions import CONVENTIONS
from samestep.common.mistakes.decay import DECAY, EACH_DECAY
from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.examples import EXAMPLES
from samestep.common.mistakes.formulas import FORMULAS
from samestep.common.mistakes.gradients import LAST_WINDOW, ROUNDED, SCALES
from samestep.common.mistakes.groups import GROUPS, STRAYS, TURNS, trained_apart
from samestep.common.mistakes.microbatches import MICROBATCHES
from samestep.common.mistakes.mistake import Mistake
from samestep.common.mistakes.parts import AGAIN, PARTS
from samestep.common.mistakes.rates import HYPER
from samestep.common.mistakes.replicas import BY_RANK, REPLICAS
from samestep.common.mistakes.targets import MODE, TARGETS
from samestep.common.mistakes.updates import FOLLOWED, UPDATES
from samestep.common.mistakes.written import MOVED_WITHIN, WRITTEN

MISTAKES: tuple[Mistake, ...] = (
    *TURNS,
    *AGAIN,
    *EACH_DECAY,
    *MOVED_WITHIN,
    *EXAMPLES,
    *BY_RANK,
    *GROUPS,
    *HYPER,
    *PARTS,
    *batch_norm.MISTAKES,
    *CLIPPING,
    *LAST_WINDOW,
    *STRAYS,
    *SCALES,
    *MICROBATCHES,
    *batch_norm.STILL,
    *FOLLOWED,
    *ROUNDED,
    *DECAY,
    *WRITTEN,
    *MODE,
    *TARGETS,
    *FORMULAS,
    *CONVENTIONS,
    *UPDATES,
    *ON_ONE_RANK,
    *REPLICAS,
)
"""All known mistakes. Those that explain more come first, and the first that fits is the cause."""


@dataclasses.dataclass(frozen=True)
class Cause:
    """A known mistake that explains the difference.

    Attributes:
        name: The name of the mistake.
        sentence: The sentence that names it.
        thread: The thread in which the mistake was reported.
    """

    name: str
    sentence: str
    thread: str


def of_step(name: str) -> str:
    """Returns the sentence about a step of the oracle with a mistake that records can show as well.

    Args:
        name: The name of the mistake and of the mutant.
    """
    (mistake,) = (each for each in MISTAKES if each.name == name)
    assert mistake.of_step, name
    return mistake.of_step


def causes(evidence: Evidence, mistakes: Sequence[Mistake] = MISTAKES) -> tuple[Cause, ...]:
    """Finds the known mistake that explains the step, or several factors if the numbers behind them are equal.

    Args:
        evidence: The evidence of the step.
        mistakes: The mistakes to try.
    """
    is_apart = evidence.phase in ("data", "hyper-parameters") and trained_apart(evidence) is not None
    tried = TURNS if is_apart else mistakes  # other optimizers get other data, which is no mistake
    found = [(each, sentence) for each in tried for sentence in _tried(each, evidence)]
    alike = [each for each in found if each[0] in SCALES] if found and found[0][0] in SCALES else found[:1]
    return tuple(Cause(each.name, sentence, each.thread) for each, sentence in alike)


def _tried(mistake: Mistake, evidence: Evidence) -> Iterator[str]:
    """Yields the mistake's sentence if it explains the step, as it is or else with A and B swapped."""
    if evidence.phase not in mistake.phases:
        return
    words = mistake.arithmetic(evidence)
    if words is not None:
        yield mistake.sentence.format(a="A", b="B", **words)
    elif mistake.has_sides and (words := mistake.arithmetic(evidence.swapped())) is not None:
        yield mistake.sentence.format(a="B", b="A", **words)

"""The arithmetic of mistakes in gradients: factors, parts that are missing, rounding."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import Words, near, spell
from samestep.common.mistakes.seen_tensor import SeenTensor, common_ratio, differing, length
from samestep.common.mistakes.targets import said_weights
from samestep.common.steps.gradient_transforms import CLIP_EACH, CLIP_NORM, GRADIENT_PHASES, factor
from samestep.common.steps.projections import PROJECTIONS

GRADIENTS = ("loss", *GRADIENT_PHASES)
"""The phases in which a mistake in gradients may first show."""


EXACT = 3e-6
"""The largest error of a sum of float32 losses, relative to the sum."""

PART = 0.02
"""The smallest share of a gradient that a missing rank's part makes up; a smaller difference has another cause."""


def phase_of(scalars: Sequence[Mapping[str, float]], seen: Sequence[SeenTensor]) -> str:
    """Returns the phase in which gradients first differ: clipping, if the factors of clipping explain the difference.

    Args:
        scalars: The scalars of the step in both runs.
        seen: The gradients.
    """
    factors, ratio = [factor(each) for each in scalars], common_ratio(seen)
    is_explained = factors != [1.0, 1.0] and ratio is not None and near(ratio * factors[0], factors[1])
    return GRADIENT_PHASES[is_explained]


def ratio_of_all(evidence: Evidence) -> float | None:
    """Returns the common ratio of all gradients before clipping; None if there is none or it is 1."""
    ratio = common_ratio(evidence.gradients)
    return None if ratio is None or near(ratio, 1.0) else ratio


def is_exactly(ratio: float, number: float) -> str:
    """Returns the spelling of a ratio that is a number or its inverse; "" if it is neither.

    Args:
        ratio: The measured ratio.
        number: The number that it may be.
    """
    if number < 1.5 and near(number, 1.0):
        return ""
    return spell(number) if near(ratio, number) else f"1/{spell(number)}" if near(ratio, 1 / number) else ""


def ratio_words(ratio: float, numbers: Iterable[float]) -> Words | None:
    """Returns a ratio, the first number that it equals or is the inverse of, and which of the two; None if there is none.

    Args:
        ratio: The measured ratio.
        numbers: The numbers that the ratio or its inverse may be; those up to 1 do not count.
    """
    number = next((each for each in numbers if each > 1 and is_exactly(ratio, each)), None)
    if number is None:
        return None
    way = "which is" if near(ratio, number) else "which is one over"
    return {"ratio": spell(ratio), "number": f"{number:g}", "way": way}


def times(
    number_of: Callable[[Evidence], Iterator[float]], is_on_loss: bool | None, evidence: Evidence
) -> Words | None:
    """Checks that every gradient is multiplied or divided by one of several numbers, and that clipping has not changed that.

    Args:
        number_of: Yields the numbers.
        is_on_loss: Whether the loss must have the ratio as well (True), or must not (False); None if either will do.
        evidence: The evidence of the step.
    """
    ratio, of_loss = ratio_of_all(evidence), evidence.loss_ratio
    if ratio is None or evidence.is_transformed:
        return None
    has_ratio = of_loss is not None and near(of_loss, ratio)
    if not has_ratio and any(each.norm == length(each.other) == 0 for each in evidence.gradients):
        return None  # a layer that starts at zero, e.g. an adapter's second matrix, hides its factor from the loss
    return ratio_words(ratio, number_of(evidence)) if is_on_loss in (None, has_ratio) else None


def processes(evidence: Evidence) -> Iterator[float]:
    """Yields the numbers of processes of both runs, except 1."""
    yield from {float(evidence.a.world), float(evidence.b.world)} - {1.0}


def microbatches(evidence: Evidence) -> Iterator[float]:
    """Yields the numbers of micro-batches of both runs, except 1."""
    yield from {float(evidence.a.passes), float(evidence.b.passes)} - {1.0}


def both(evidence: Evidence) -> Iterator[float]:
    """Yields the products of two numbers of processes or micro-batches."""
    yield from (n * k for n in processes(evidence) for k in microbatches(evidence))
    yield from (n * n for n in processes(evidence))
    yield from (k * k for k in microbatches(evidence))


def roots(evidence: Evidence) -> Iterator[float]:
    """Yields the square roots that are not whole; a whole one may be the size of a mesh axis, such as 2 of 4 processes."""
    yield from (root for n in (*processes(evidence), *microbatches(evidence)) if (root := math.sqrt(n)) % 1)


def roots_of_processes(evidence: Evidence) -> Iterator[float]:
    """Yields the square roots of the numbers of processes of both runs."""
    yield from map(math.sqrt, processes(evidence))


def targets(evidence: Evidence) -> Iterator[float]:
    """Yields the numbers of examples of all ranks together, and of each rank."""
    for side in (evidence.a, evidence.b):
        ranks = [len(rows) for rows in (side.rows or {}).values() if rows]
        yield from {float(sum(ranks)), *(float(each) for each in ranks)}


def loss_alone(evidence: Evidence) -> Words | None:
    """Checks that the losses differ by a factor and the gradients do not, and that neither clipping nor rounding hides one."""
    ratio = evidence.loss_ratio
    is_alone = ratio is not None and are_same(evidence, ratio) and are_same(evidence, ratio * evidence.clipped)
    return {"ratio": spell(ratio)} if is_alone else None


def are_same(evidence: Evidence, ratio: float) -> bool:
    """Returns whether no gradient differs, although one would if all had the ratio.

    Args:
        evidence: The evidence of the step.
        ratio: The ratio.
    """
    seen = evidence.gradients
    return not differing(seen) and not all(each.explained_by(ratio) for each in seen)


def loss_and_norm(evidence: Evidence) -> Words | None:
    """Checks that the losses differ by a factor that clipping removes from all gradients, or from those above the bound."""
    ratio, (one, other), (most, theirs) = evidence.loss_ratio, evidence.scalars(CLIP_NORM), evidence.scalars(CLIP_EACH)
    if ratio is None or ratio < 1 or near(ratio, 1.0):
        return None
    if one and other and near(other / one, ratio) and are_same(evidence, ratio):
        is_factor = max(evidence.a.factor, evidence.b.factor) < 1
        return {"ratio": spell(ratio), "how": "; after clipping they are the same"} if is_factor else None
    if not most or most != theirs or not all(_is_scaled_alone(each, ratio, most) for each in evidence.gradients):
        return None
    return {"ratio": spell(ratio), "how": f": none has a norm above {most:g} after it"}


def _is_scaled_alone(seen: SeenTensor, ratio: float, most: float) -> bool:
    """Returns whether B's gradient is `ratio` times A's, after both were clipped to a norm if they exceeded it."""
    norm = seen.norms[0] if seen.norms else 0.0
    return seen.explained_by(1.0 if near(norm, most) else min(ratio, most / norm) if norm else ratio)


def last_window(evidence: Evidence) -> Words | None:
    """Checks for a last window of fewer micro-batches that is divided by the usual number of them."""
    side = evidence.b if evidence.b.passes > 1 or evidence.b.usual_passes > 1 else evidence.a
    ratio, passes, usual = ratio_of_all(evidence), side.passes, side.usual_passes
    if ratio is None or not 0 < passes < usual:
        return None
    return {"passes": str(passes), "usual": str(usual)} if is_exactly(ratio, usual / passes) else None


def mean_of_means(evidence: Evidence) -> Words | None:
    """Checks that inputs agree and losses do not, each layer has its own ratio, and the parts show what divides them."""
    number, said = _averaged_parts(evidence), said_weights(evidence)
    return {"parts": str(number), "also": f". And {said}" if said else ""} if number else None


def _averaged_parts(evidence: Evidence) -> int | None:
    """Returns over how many parts one run averages, if that explains the loss and may explain the gradients; otherwise None."""
    if evidence.loss_ratio is None or common_ratio(evidence.gradients) is not None:
        return None
    if _weights_of_parts(evidence):
        return len(evidence.b.parts)
    cuts = [side.world * side.passes for side in (evidence.a, evidence.b)]
    if cuts[0] == cuts[1] or near(evidence.loss_ratio, 1.0):
        return None
    large = [each for each in differing(evidence.gradients) if each.norm > 0 and length(each.other)]
    alike = [float(each.one @ each.other) / (PROJECTIONS * each.norm * length(each.other)) for each in large]
    times = [length(each.other) / each.norm for each in large]
    # A part weighs 1/n in a mean of n means, and at most 1 by its share of the targets.
    if not large or statistics.median(alike) < 0.5 or not 1 / max(cuts) <= statistics.median(times) <= max(cuts):
        return None
    return max(cuts) if _lies_between(evidence) else None


def _weights_of_parts(evidence: Evidence) -> bool:
    """Returns whether the parts of the losses differ by weights that are 1 on average.

    A part's sum over all targets is its mean times its share of the targets, and shares add up to 1.
    """
    a, b = evidence.a.parts, evidence.b.parts
    if len(a) != len(b) or len(a) < 2 or not all(a) or not all(b):
        return False
    for one, other in ((a, b), (b, a)):
        weights = [x / y for x, y in zip(one, other, strict=True)]
        if abs(sum(weights) / len(weights) - 1) < EXACT and max(weights) - min(weights) > PART:
            return True
    return False


def _lies_between(evidence: Evidence) -> bool:
    """Returns whether the loss of the run that is split less is a weighted mean of the losses of the other run's parts."""
    whole, cut = sorted((evidence.a, evidence.b), key=lambda side: side.world * side.passes)
    if not cut.parts or cut.loss is None or whole.loss is None:
        return False
    scale = cut.loss * len(cut.parts) / sum(cut.parts) if sum(cut.parts) else 1.0
    parts = [scale * part for part in cut.parts]
    return min(parts) <= whole.loss <= max(parts)

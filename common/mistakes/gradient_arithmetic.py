"""The arithmetic of mistakes in gradients: factors, parts that are missing, rounding, clipping."""

import math
from collections.abc import Callable, Iterator

from samestep.common.mistakes.evidence import CLIP_MOST, CLIP_NORM, Evidence, common_ratio, length
from samestep.common.mistakes.mistake import Arithmetic, Words, near, spell

BF16, FP16 = (3e-4, 3e-3), (3e-5, 3e-4)
"""The relative error of a tensor whose numbers were rounded to 8, and to 11, digits."""

PART = 0.02
"""The least that a missing rank's part makes of a gradient; less than that is something else."""


def _ratio(evidence: Evidence) -> float | None:
    """Returns the ratio of all gradients, before clipping, if it is one and not 1."""
    ratio = common_ratio(evidence.gradients)
    return None if ratio is None or near(ratio, 1.0) else ratio


def _is_exactly(ratio: float, number: float) -> str:
    """Returns how a ratio is spelled that is a number or its inverse; "" if it is neither."""
    if number < 1.5 and near(number, 1.0):
        return ""
    return spell(number) if near(ratio, number) else f"1/{spell(number)}" if near(ratio, 1 / number) else ""


def times(number_of: Callable[[Evidence], Iterator[float]], evidence: Evidence) -> Words | None:
    """Every gradient times one of several numbers, or divided by it.

    Args:
        number_of: Yields the numbers.
        evidence: The evidence of the step.
    """
    ratio = _ratio(evidence)
    if ratio is None:
        return None
    for number in number_of(evidence):
        if number > 1 and _is_exactly(ratio, number):
            return {
                "ratio": spell(ratio),
                "number": f"{number:g}",
                "way": "times" if near(ratio, number) else "divided by",
            }
    return None


def processes(evidence: Evidence) -> Iterator[float]:
    """The numbers of processes of both runs."""
    yield from {float(evidence.a.world), float(evidence.b.world)} - {1.0}


def microbatches(evidence: Evidence) -> Iterator[float]:
    """The numbers of micro-batches of both runs."""
    yield from {float(evidence.a.passes), float(evidence.b.passes)} - {1.0}


def both(evidence: Evidence) -> Iterator[float]:
    """Yields the products of two of them."""
    yield from (n * k for n in processes(evidence) for k in microbatches(evidence))
    yield from (n * n for n in processes(evidence))
    yield from (k * k for k in microbatches(evidence))


def roots(evidence: Evidence) -> Iterator[float]:
    """Their roots."""
    yield from (math.sqrt(n) for n in (*processes(evidence), *microbatches(evidence)))


def targets(evidence: Evidence) -> Iterator[float]:
    """Yields the numbers of examples, of all ranks and of each."""
    for side in (evidence.a, evidence.b):
        ranks = [len(rows) for rows in (side.rows or {}).values() if rows]
        yield from {float(sum(ranks)), *(float(each) for each in ranks)}


def _is_clipped(evidence: Evidence) -> bool:
    return CLIP_NORM in evidence.a.scalars or CLIP_NORM in evidence.b.scalars


def on_scaled_loss(wants_scaled: bool, arithmetic: Arithmetic, evidence: Evidence) -> Words | None:
    """Returns the same if the loss has the ratio of the gradients too, or if it has not.

    Args:
        wants_scaled: Whether the loss has to have the ratio as well.
        arithmetic: What is asked.
        evidence: The evidence of the step.
    """
    if (ratio := _ratio(evidence)) is None or _is_clipped(evidence):
        return None
    is_scaled = evidence.loss_ratio is not None and near(evidence.loss_ratio, ratio)
    return arithmetic(evidence) if is_scaled == wants_scaled else None


def loss_alone(evidence: Evidence) -> Words | None:
    """The loss has a factor and the gradients are the same."""
    if evidence.loss_ratio is None or not evidence.gradients or any(each.differs for each in evidence.gradients):
        return None
    return {"ratio": spell(evidence.loss_ratio)}


def last_window(evidence: Evidence) -> Words | None:
    """Returns a last window of fewer micro-batches that is divided by the usual number of them."""
    side = evidence.b if evidence.b.passes > 1 or evidence.b.usual_passes > 1 else evidence.a
    ratio, passes, usual = _ratio(evidence), side.passes, side.usual_passes
    if ratio is None or not 0 < passes < usual:
        return None
    return {"passes": str(passes), "usual": str(usual)} if _is_exactly(ratio, usual / passes) else None


def part_only(evidence: Evidence) -> Words | None:
    """Only tensors of one kind differ."""
    differing = [each for each in evidence.gradients if each.differs]
    kinds = {each.kind for each in differing}
    of_kind = [each for each in evidence.gradients if each.kind in kinds]
    if any(_is_nothing(each.other) or _is_nothing(each.one) or each.off < PART for each in differing):
        return None
    if not differing or "kernel" in kinds or len(differing) == len(evidence.gradients) or len(of_kind) > len(differing):
        return None
    words = {"norm": "norms", "table": "embeddings", "bias": "biases"}
    ratio = common_ratio(differing)
    how = "" if ratio is None else f", {spell(ratio)} times"
    return {"kinds": " and ".join(words[each] for each in sorted(kinds)), "how": how}


def rounded(window: tuple[float, float], evidence: Evidence) -> Words | None:
    """Every gradient is off by what rounding to few digits does, in no direction.

    Args:
        window: The least and the largest relative error.
        evidence: The evidence of the step.
    """
    own = [each for each in evidence.gradients if each.size >= 8 and each.norm > each.rounding * each.bound]
    if len(own) < 2 or not all(each.differs for each in own):
        return None
    offs = sorted(each.off for each in own)
    least, most = window
    inside = sum(least <= off <= most for off in offs)
    is_even = inside >= 0.8 * len(offs) and least <= offs[len(offs) // 2] <= most
    return {"off": f"{offs[len(offs) // 2]:.1e}"} if is_even and common_ratio(own) is None else None


def mean_of_means(evidence: Evidence) -> Words | None:
    """Inputs are the same, the loss is another one, each layer has a ratio of its own, and the runs are cut differently."""
    cuts = [side.world * side.passes for side in (evidence.a, evidence.b)]
    if cuts[0] == cuts[1] or evidence.loss_ratio is None or near(evidence.loss_ratio, 1.0):
        return None
    large = [each for each in evidence.gradients if each.differs and each.norm > 0]
    alike = [
        float(each.one @ each.other) / (8 * each.norm * length(each.other)) for each in large if length(each.other)
    ]
    if not alike or common_ratio(evidence.gradients) is not None or sorted(alike)[len(alike) // 2] < 0.5:
        return None
    return {"parts": str(max(cuts))} if _lies_between(evidence) else None


def _lies_between(evidence: Evidence) -> bool:
    """Returns whether the loss of the run that is cut less is a weighted mean of the losses of the other's parts."""
    whole, cut = sorted((evidence.a, evidence.b), key=lambda side: side.world * side.passes)
    if not cut.parts or cut.loss is None or whole.loss is None:
        return False
    scale = cut.loss * len(cut.parts) / sum(cut.parts) if sum(cut.parts) else 1.0
    parts = [scale * part for part in cut.parts]
    return min(parts) <= whole.loss <= max(parts)


def clip(ratio_of: Callable[[Evidence], Iterator[float]], evidence: Evidence) -> Words | None:
    """Gradients before clipping agree, and the norms that they are clipped by do not.

    Args:
        ratio_of: Yields what the ratio of the norms may be.
        evidence: The evidence of the step.
    """
    norms = [side.scalars.get(CLIP_NORM) for side in (evidence.a, evidence.b)]
    if _ratio(evidence) is None or norms[0] is None or norms[1] is None or not norms[0]:
        return None
    apart = norms[1] / norms[0]
    for number in ratio_of(evidence):
        if _is_exactly(apart, number):
            return {"ratio": spell(apart), "number": f"{number:g}"}
    return None


def loss_scales(evidence: Evidence) -> Iterator[float]:
    """The loss scales of both runs."""
    yield from (
        side.scalars["loss_scale"] for side in (evidence.a, evidence.b) if side.scalars.get("loss_scale", 1) > 1
    )


def not_clipped(evidence: Evidence) -> Words | None:
    """Returns a's gradients are clipped and B's are those before it."""
    ratio, coefficient = _ratio(evidence), evidence.a.clip_coefficient
    if ratio is None or coefficient == 1 or CLIP_NORM in evidence.b.scalars or not near(ratio, 1 / coefficient):
        return None
    return {"most": f"{evidence.a.scalars[CLIP_MOST]:g}"}


def missing(evidence: Evidence) -> Words | None:
    """Tensors have a gradient in A and none in B."""
    lost = [
        each for each in evidence.gradients if each.differs and _is_nothing(each.other) and not _is_nothing(each.one)
    ]
    if not lost or len(lost) < sum(each.differs for each in evidence.gradients):
        return None
    rest = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return {"names": ", ".join(each.name for each in lost[:3]) + rest}


def _is_nothing(projections: object) -> bool:
    return not length(projections) > 0  # type: ignore[arg-type]


def unexchanged(evidence: Evidence) -> Words | None:
    """Returns the gradients that the ranks of B gave their optimizers differ."""
    split = {name for phase, name, _ in evidence.b.splits if phase == "gradient"}
    trained = {each.name for each in evidence.gradients}
    kinds = {each.kind for each in evidence.gradients if each.name in split}
    if not kinds & {"kernel", "table"} or evidence.a.splits:
        return None
    which = "all parameters" if split >= trained else f"{len(split)} of {len(trained)} parameters"
    return {"which": which}

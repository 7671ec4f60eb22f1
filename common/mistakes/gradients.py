"""Mistakes in the size of gradients: sums where there should be means, parts that are missing, clipping."""

import math
from collections.abc import Callable, Iterator
from functools import partial

from samestep.common.mistakes.evidence import Evidence, common_ratio, length
from samestep.common.mistakes.mistake import Arithmetic, Mistake, Words, spell

NEAR = 2e-4
"""How far a measured ratio may be from a number to be that number, relative to it."""
BF16, FP16 = (3e-4, 3e-3), (3e-5, 3e-4)
"""The relative error of a tensor whose numbers were rounded to 8, and to 11, digits."""


def near(ratio: float, number: float) -> bool:
    """Whether a measured ratio is a number.

    Args:
        ratio: As measured.
        number: Which it may be.
    """
    return math.isfinite(ratio) and abs(ratio - number) <= NEAR * abs(number)


def _ratio(evidence: Evidence) -> float | None:
    """The ratio of all gradients, before clipping, if it is one and not 1."""
    ratio = common_ratio(evidence.gradients)
    return None if ratio is None or near(ratio, 1.0) else ratio


def _is_exactly(ratio: float, number: float) -> str:
    """How a ratio is spelled that is a number or its inverse; "" if it is neither."""
    if number < 1.5 and near(number, 1.0):
        return ""
    return spell(number) if near(ratio, number) else f"1/{spell(number)}" if near(ratio, 1 / number) else ""


def _times(number_of: Callable[[Evidence], Iterator[float]], evidence: Evidence) -> Words | None:
    """Every gradient times one of several numbers, or divided by it."""
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


def _processes(evidence: Evidence) -> Iterator[float]:
    yield from {float(evidence.a.world), float(evidence.b.world)} - {1.0}


def _microbatches(evidence: Evidence) -> Iterator[float]:
    yield from {float(evidence.a.passes), float(evidence.b.passes)} - {1.0}


def _both(evidence: Evidence) -> Iterator[float]:
    yield from (n * k for n in _processes(evidence) for k in _microbatches(evidence))
    yield from (n * n for n in _processes(evidence))
    yield from (k * k for k in _microbatches(evidence))


def _roots(evidence: Evidence) -> Iterator[float]:
    yield from (math.sqrt(n) for n in (*_processes(evidence), *_microbatches(evidence)))


def _targets(evidence: Evidence) -> Iterator[float]:
    for side in (evidence.a, evidence.b):
        ranks = [len(rows) for rows in (side.rows or {}).values() if rows]
        yield from {float(sum(ranks)), *(float(each) for each in ranks)}


def _is_clipped(evidence: Evidence) -> bool:
    return "clip_norm" in evidence.a.scalars or "clip_norm" in evidence.b.scalars


def _on_scaled_loss(wants_scaled: bool, arithmetic: Arithmetic, evidence: Evidence) -> Words | None:
    """The same if the loss has the ratio of the gradients too, or if it has not."""
    if (ratio := _ratio(evidence)) is None or _is_clipped(evidence):
        return None
    is_scaled = evidence.loss_ratio is not None and near(evidence.loss_ratio, ratio)
    return arithmetic(evidence) if is_scaled == wants_scaled else None


def _loss_alone(evidence: Evidence) -> Words | None:
    """The loss has a factor and the gradients are the same."""
    if evidence.loss_ratio is None or not evidence.gradients or any(each.differs for each in evidence.gradients):
        return None
    return {"ratio": spell(evidence.loss_ratio)}


def _last_window(evidence: Evidence) -> Words | None:
    """A last window of fewer micro-batches that is divided by the usual number of them."""
    side = evidence.b if evidence.b.passes > 1 or evidence.b.usual_passes > 1 else evidence.a
    ratio, passes, usual = _ratio(evidence), side.passes, side.usual_passes
    if ratio is None or not 0 < passes < usual:
        return None
    return {"passes": str(passes), "usual": str(usual)} if _is_exactly(ratio, usual / passes) else None


def _part_only(evidence: Evidence) -> Words | None:
    """Only tensors of one kind differ."""
    differing = [each for each in evidence.gradients if each.differs]
    kinds = {each.kind for each in differing}
    of_kind = [each for each in evidence.gradients if each.kind in kinds]
    if any(_is_nothing(each.other) or _is_nothing(each.one) for each in differing):
        return None
    if not differing or "kernel" in kinds or len(differing) == len(evidence.gradients) or len(of_kind) > len(differing):
        return None
    words = {"norm": "norms", "table": "embeddings", "bias": "biases"}
    ratio = common_ratio(differing)
    how = "" if ratio is None else f", {spell(ratio)} times"
    return {"kinds": " and ".join(words[each] for each in sorted(kinds)), "how": how}


def _rounded(window: tuple[float, float], evidence: Evidence) -> Words | None:
    """Every gradient is off by what rounding to few digits does, in no direction."""
    own = [each for each in evidence.gradients if each.size >= 8 and each.norm > each.rounding * each.bound]
    if len(own) < 2 or not all(each.differs for each in own):
        return None
    offs = sorted(each.off for each in own)
    least, most = window
    inside = sum(least <= off <= most for off in offs)
    is_even = inside >= 0.8 * len(offs) and least <= offs[len(offs) // 2] <= most
    return {"off": f"{offs[len(offs) // 2]:.1e}"} if is_even and common_ratio(own) is None else None


def _mean_of_means(evidence: Evidence) -> Words | None:
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
    """Whether the loss of the run that is cut less is a weighted mean of the losses of the other's parts."""
    whole, cut = sorted((evidence.a, evidence.b), key=lambda side: side.world * side.passes)
    if not cut.parts or cut.loss is None or whole.loss is None:
        return False
    scale = cut.loss * len(cut.parts) / sum(cut.parts) if sum(cut.parts) else 1.0
    parts = [scale * part for part in cut.parts]
    return min(parts) <= whole.loss <= max(parts)


def _clip(ratio_of: Callable[[Evidence], Iterator[float]], evidence: Evidence) -> Words | None:
    """Gradients before clipping agree, and the norms that they are clipped by do not."""
    norms = [side.scalars.get("clip_norm") for side in (evidence.a, evidence.b)]
    if _ratio(evidence) is None or norms[0] is None or norms[1] is None or not norms[0]:
        return None
    apart = norms[1] / norms[0]
    for number in ratio_of(evidence):
        if _is_exactly(apart, number):
            return {"ratio": spell(apart), "number": f"{number:g}"}
    return None


def _loss_scales(evidence: Evidence) -> Iterator[float]:
    yield from (
        side.scalars["loss_scale"] for side in (evidence.a, evidence.b) if side.scalars.get("loss_scale", 1) > 1
    )


def _not_clipped(evidence: Evidence) -> Words | None:
    ratio, coefficient = _ratio(evidence), evidence.a.clip_coefficient
    if ratio is None or coefficient == 1 or "clip_norm" in evidence.b.scalars or not near(ratio, 1 / coefficient):
        return None
    return {"most": f"{evidence.a.scalars['clip_max_norm']:g}"}


def _missing(evidence: Evidence) -> Words | None:
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


def _unexchanged(evidence: Evidence) -> Words | None:
    split = {name for phase, name, _ in evidence.b.splits if phase == "gradient"}
    trained = {each.name for each in evidence.gradients}
    kinds = {each.kind for each in evidence.gradients if each.name in split}
    if not kinds & {"kernel", "table"} or evidence.a.splits:
        return None
    which = "all parameters" if split >= trained else f"{len(split)} of {len(trained)} parameters"
    return {"which": which}


GRADIENTS = ("loss", "gradient", "clipping")
SCALES = (
    Mistake(
        "loss_summed",
        ("loss",),
        _loss_alone,
        "only the loss that is reported differs, B's is {ratio} times A's; the step itself is the same",
        "keras-team/keras#16285",
    ),
    Mistake(
        "sum_for_mean",
        GRADIENTS,
        partial(_on_scaled_loss, False, partial(_times, _processes)),
        "every gradient of B is {ratio} times A's, {way} the number of processes ({number}), and the loss is not: one of the "
        "two adds the gradients of its processes up where the other takes their mean",
        "tensorflow/tensorflow#25806",
    ),
    Mistake(
        "loss_divided_by_processes",
        GRADIENTS,
        partial(_on_scaled_loss, True, partial(_times, _processes)),
        "loss and every gradient of B are {ratio} times A's, {way} the number of processes ({number}): the loss of one of the "
        "two is multiplied or divided by it",
        "facebookresearch/3detr#56",
    ),
    Mistake(
        "times_microbatches",
        GRADIENTS,
        partial(_on_scaled_loss, True, partial(_times, _microbatches)),
        "loss and every gradient of B are {ratio} times A's, {way} the number of micro-batches ({number}): one of the two does "
        "not divide by it, or does twice",
        "huggingface/transformers#35203",
    ),
    Mistake(
        "divided_by_microbatches",
        GRADIENTS,
        partial(_on_scaled_loss, False, partial(_times, _microbatches)),
        "every gradient of B is {ratio} times A's, {way} the number of micro-batches ({number}), and the loss is not",
        "pytorch/pytorch#144352",
    ),
    Mistake(
        "mean_twice",
        GRADIENTS,
        lambda e: _on_scaled_loss(True, partial(_times, _both), e) or _on_scaled_loss(False, partial(_times, _both), e),
        "every gradient of B is {ratio} times A's, {way} {number}: the division by the number of processes or micro-batches is "
        "there twice in one of the two, and missing or there once in the other",
        "huggingface/transformers#37474",
    ),
    Mistake(
        "root_of_processes",
        GRADIENTS,
        partial(_on_scaled_loss, False, partial(_times, _roots)),
        "every gradient of B is {ratio} times A's, the root of a number of processes or micro-batches",
        "pytorch/pytorch#88621",
    ),
    Mistake(
        "times_targets",
        GRADIENTS,
        lambda e: (
            _on_scaled_loss(True, partial(_times, _targets), e) or _on_scaled_loss(False, partial(_times, _targets), e)
        ),
        "every gradient of B is {ratio} times A's, {way} the number of examples ({number}): one of the two takes the sum over "
        "examples where the other takes the mean",
        "pytorch/torchtitan#2972",
    ),
    Mistake(
        "last_window_divided_by_all",
        GRADIENTS,
        _last_window,
        "the last window has {passes} of {usual} micro-batches, and one of the two divides it by {usual} all the same",
        "Lightning-AI/pytorch-lightning#19987",
    ),
)
CLIPPING = (
    Mistake(
        "clip_before_unscaling",
        GRADIENTS,
        partial(_clip, _loss_scales),
        "the norm that B clips by is {ratio} times A's, the loss scale: one of the two clips before it unscales",
        "Lightning-AI/pytorch-lightning#9330",
    ),
    Mistake(
        "clip_by_local_norm",
        GRADIENTS,
        partial(_clip, _roots),
        "the norm that B clips by is {ratio} times A's, the root of the number of processes: one of the two clips by the norm "
        "of a part, or counts replicas",
        "pytorch/pytorch#88621",
    ),
    Mistake(
        "clip_forgotten",
        GRADIENTS,
        _not_clipped,
        "A clips its gradients to norm {most}, and B does not",
        "deepspeedai/DeepSpeed#1801",
        has_sides=True,
    ),
)
PARTS = (
    Mistake(
        "forgotten_exchange",
        (*GRADIENTS, "replicas"),
        _unexchanged,
        "the gradients of {which} differ between the ranks of B: they were not exchanged",
        "pytorch/pytorch#104336",
        has_sides=True,
    ),
    Mistake(
        "missing_gradients",
        GRADIENTS,
        _missing,
        "{names} have a gradient in A and none in B",
        "pytorch/pytorch#69031",
        has_sides=True,
    ),
    Mistake(
        "partial_on_replicated",
        GRADIENTS,
        _part_only,
        "only {kinds} have other gradients{how}: they were not summed over ranks, or were twice",
        "NVIDIA/Megatron-LM#1446",
    ),
)
ROUNDED = (
    Mistake(
        "gradients_rounded_to_bf16",
        ("gradient", "clipping"),
        partial(_rounded, BF16),
        "every gradient is off by {off} of its norm in no direction: one of the two rounded them to bfloat16, on the wire or "
        "in the sum",
        "",
    ),
    Mistake(
        "gradients_rounded_to_fp16",
        ("gradient", "clipping"),
        partial(_rounded, FP16),
        "every gradient is off by {off} of its norm in no direction: one of the two rounded them to float16, on the wire or "
        "in the sum",
        "",
    ),
    Mistake(
        "mean_of_means",
        GRADIENTS,
        _mean_of_means,
        "loss and gradients differ by factors near 1 that no two layers share, and only one of the two is cut into {parts} "
        "parts: a mean of means where the parts have uneven numbers of targets, or other targets",
        "huggingface/transformers#34191",
    ),
)

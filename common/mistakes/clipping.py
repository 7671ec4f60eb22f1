"""Mistakes in scaling and clipping: by the wrong norm, at the wrong time, on some ranks only, or not at all."""

import math
from collections.abc import Callable, Iterator
from functools import partial

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.gradient_arithmetic import (
    GRADIENTS,
    loss_and_norm,
    ratio_of_all,
    ratio_words,
    roots_of_processes,
    times,
)
from samestep.common.mistakes.mistake import Mistake, Words, names_of, near
from samestep.common.mistakes.replicas import of_one_kind
from samestep.common.mistakes.seen_tensor import common_ratio, length
from samestep.common.steps.gradient_transforms import (
    CLIP_CALLS,
    CLIP_EACH,
    CLIP_MOST,
    CLIP_NORM,
    CLIP_VALUE,
    GRADIENT_PHASES,
    LOSS_SCALE,
)


def clip(ratio_of: Callable[[Evidence], Iterator[float]], evidence: Evidence) -> Words | None:
    """Checks that gradients agree before clipping, but the norms by which they are clipped do not.

    Args:
        ratio_of: Yields the possible ratios of the norms.
        evidence: The evidence of the step.
    """
    (one, other), ratio = evidence.scalars(CLIP_NORM), ratio_of_all(evidence)
    if ratio is None or not one or other is None or not near(ratio * evidence.a.factor, evidence.b.factor):
        return None
    return ratio_words(other / one, ratio_of(evidence))


def loss_scales(evidence: Evidence) -> Iterator[float]:
    """Yields the loss scales of both runs."""
    yield from (scale for scale in evidence.scalars(LOSS_SCALE) if scale is not None)


def not_clipped(evidence: Evidence) -> Words | None:
    """Checks that A clips its gradients, and that B's equal A's before clipping."""
    ratio, factor, clips = ratio_of_all(evidence), evidence.a.factor, {CLIP_NORM, CLIP_VALUE} & {*evidence.b.scalars}
    if ratio is None or factor in (0, 1) or clips or not near(ratio, 1 / factor):
        return None
    return {"most": f"{evidence.a.scalars[CLIP_MOST]:g}"}


def other_norm(evidence: Evidence) -> Words | None:
    """Checks that the same gradients are clipped by different norms, in equally many calls."""
    (one, other), bounds, ratio = evidence.scalars(CLIP_NORM), evidence.scalars(CLIP_MOST), ratio_of_all(evidence)
    if ratio is None or not one or not other or bounds[0] != bounds[1] or len({*evidence.counts(CLIP_CALLS)} - {0}) > 1:
        return None
    return (
        {"one": f"{one:.6g}", "other": f"{other:.6g}"} if near(ratio * evidence.a.factor, evidence.b.factor) else None
    )


def part_alone(evidence: Evidence) -> Words | None:
    """Checks that B clips only some gradients, by their own norm, while A clips all or none."""
    (_, norm), ours, theirs = evidence.scalars(CLIP_NORM), evidence.a.factor, evidence.b.factor
    if not norm or not ours or theirs in (0, 1) or {CLIP_EACH, CLIP_VALUE} & {*evidence.a.scalars, *evidence.b.scalars}:
        return None
    part = [each for each in evidence.gradients if each.explained_by(theirs / ours)]
    rest = [each for each in evidence.gradients if each not in part]
    squares = sum(each.norms[0] ** 2 for each in part if each.norms) / ours**2
    if not part or not rest or not near(squares, norm**2) or not all(each.explained_by(1 / ours) for each in rest):
        return None
    how = f"all of them to one of {evidence.a.scalars[CLIP_MOST]:g}" if ours < 1 else "none"
    return {"names": names_of(part), "most": f"{evidence.b.scalars[CLIP_MOST]:g}", "how": how}


def each_microbatch(evidence: Evidence) -> Words | None:
    """Checks that B clips once per micro-batch and A once or never, and that no factor explains the gradients."""
    (ours, theirs), passes = evidence.counts(CLIP_CALLS), evidence.b.passes
    if passes < 2 or ours > 1 or {theirs, evidence.a.passes} != {passes} or CLIP_NORM not in evidence.b.scalars:
        return None
    is_shown = evidence.b.factor < 1 and not {CLIP_MOST, CLIP_EACH, CLIP_VALUE} & {*evidence.a.scalars}
    if common_ratio(evidence.gradients) is not None or not (ours or is_shown):
        return None
    return {"passes": str(passes), "how": "only once" if ours else "never"}


def each_tensor(evidence: Evidence) -> Words | None:
    """Checks that only B clips each tensor's gradient to a norm, with the factors that the norms of A's gradients imply."""
    scalars, factor = evidence.a.scalars, evidence.a.factor
    most = evidence.b.scalars.get(CLIP_EACH) or _one_norm(evidence)
    if not most or not factor or CLIP_EACH in scalars or CLIP_VALUE in scalars:
        return None
    for each in evidence.gradients:
        norm = each.norms[0] / factor if each.norms else math.nan
        if norm > most and each.norms and near(each.norms[1], most):  # torch adds 1e-6 to the norm that it divides by
            ratio = each.norms[1] / each.norms[0]
        else:
            ratio = (most / norm if norm > most else 1.0) / factor
        if not each.explained_by(ratio):
            return None
    return {"most": f"{most:.4g}", "how": f"all of them to one of {scalars[CLIP_MOST]:g}" if factor < 1 else "none"}


def _one_norm(evidence: Evidence) -> float | None:
    """Returns a norm that several gradients of B have and none exceeds, as when hooks or single calls clip them; None if none."""
    scalars, norms = evidence.b.scalars, sorted(each.norms[1] for each in evidence.gradients if each.norms)
    are_together = CLIP_NORM in scalars and scalars.get(CLIP_CALLS, 0) <= evidence.b.passes
    if are_together or CLIP_VALUE in scalars or len(norms) < 2 or not norms[-1]:
        return None
    return norms[-1] if near(norms[-2], norms[-1]) else None


def by_value(evidence: Evidence) -> Words | None:
    """Checks that only B clips each number: none is larger afterwards, and tensors without larger numbers are unchanged."""
    (norm, factor), most = (evidence.a.scalars.get(CLIP_MOST), evidence.a.factor), evidence.b.scalars.get(CLIP_VALUE)
    if not most or not factor or {CLIP_VALUE, CLIP_EACH} & {*evidence.a.scalars} or CLIP_MOST in evidence.b.scalars:
        return None
    for each in evidence.gradients:
        is_small = each.norm <= most / MOST_BY_CHANCE * factor
        largest = MOST_BY_CHANCE * most * math.sqrt(each.size)
        if length(each.other) > largest or (is_small and not each.explained_by(1 / factor)):
            return None
    return {"most": f"{most:g}", "how": "does not" if norm is None else f"all of them to a norm of {norm:g}"}


def each_alone(evidence: Evidence) -> Words | None:
    """Checks that B clips several times after one pass and A once, each gradient by its own factor, or none of them in B."""
    calls = evidence.counts(CLIP_CALLS)
    seen = [each for each in evidence.gradients if each.one.any() or each.other.any()]
    if calls[0] != 1 or calls[1] <= evidence.b.passes or CLIP_NORM not in evidence.b.scalars:
        return None
    ratio, factor = common_ratio(seen), evidence.a.factor
    is_free = ratio is not None and factor < 1 and near(ratio * factor, 1.0)
    is_alone = ratio is None and all(common_ratio([each]) is not None for each in seen)
    return {"calls": str(calls[1])} if is_free or is_alone else None


MOST_BY_CHANCE = 4.0
"""The largest ratio of a norm's estimate from eight projections to the norm: chi-squared with 8 degrees of freedom exceeds it
with a probability of 1e-24."""

CLIPPING = (
    Mistake(
        "loss_scaled_before_clipping",
        ("loss", "gradient"),
        loss_and_norm,
        "{b}'s loss is {ratio} times {a}'s, and so is every gradient before clipping{how}",
    ),
    Mistake(
        "loss_not_scaled",
        GRADIENTS,
        partial(times, loss_scales, False),
        "every gradient of B is {ratio} times A's, {way} the loss scale ({number}), but the loss is not: one of the two divides "
        "its gradients by the loss scale and does not multiply its loss by it, or divides them twice",
    ),
    Mistake(
        "clip_before_unscaling",
        GRADIENTS,
        partial(clip, loss_scales),
        "the norm that B clips by is {ratio} times A's, {way} the loss scale: one of the two clips before it unscales",
        "Lightning-AI/pytorch-lightning#9330",
        of_step="the gradient is clipped before it is divided by the loss scale, and ends up tens of thousands of times too "
        "small",
    ),
    Mistake(
        "clip_by_local_norm",
        GRADIENTS,
        partial(clip, roots_of_processes),
        "the norm that B clips by is {ratio} times A's, {way} the square root of the number of processes: one of the "
        "two clips by the norm of a part, or counts replicas",
        "pytorch/pytorch#88621",
        of_step="the norm it clips by is that of one of {devices} shards of the gradient",
    ),
    Mistake(
        "clip_by_other_norm",
        GRADIENTS,
        other_norm,
        "the gradients are the same before clipping, but A clips by a norm of {one} and B by one of {other}: one of the two"
        " leaves some gradients out of it, or counts some twice",
        "NVIDIA/Megatron-LM#5916",
    ),
    Mistake(
        "clip_each_tensor",
        GRADIENT_PHASES,
        each_tensor,
        "{b} clips the gradient of each tensor to a norm of {most}, and {a} {how}",
    ),
    Mistake(
        "clip_part",
        GRADIENT_PHASES,
        part_alone,
        "{b} clips the gradients of {names} alone, to a norm of {most}, and {a} {how}",
    ),
    Mistake(
        "clip_forgotten",
        GRADIENTS,
        not_clipped,
        "{a} clips its gradients to a norm of {most}, and {b} does not",
        "deepspeedai/DeepSpeed#1801",
        of_step="the gradient is not clipped",
    ),
    Mistake(
        "clip_by_value",
        GRADIENT_PHASES,
        by_value,
        "{b} clips each number of its gradients to {most}, and {a} {how}",
    ),
    Mistake(
        "clip_each_alone",
        GRADIENT_PHASES,
        each_alone,
        "{b} clips its gradients in {calls} calls, each by a norm of its own, and {a} all by one",
    ),
    Mistake(
        "clip_each_microbatch",
        ("gradient",),
        each_microbatch,
        "{b} clips its gradients {passes} times in a step, once after each micro-batch, and {a} {how}",
        "huggingface/accelerate#641",
    ),
)
ON_ONE_RANK = (
    Mistake(
        "clip_on_one_rank",
        (*GRADIENT_PHASES, "replicas"),
        of_one_kind,
        "only norms and biases differ between the ranks of {b} (rank {ranks}): they are clipped, exchanged or updated on some "
        "ranks only",
        "deepspeedai/DeepSpeed#1801",
        of_step="only the first of {devices} ranks clipped in the step before: the weights of the others are no longer its "
        "own",
    ),
)

"""Finds the first difference within one step, in the order of the step's phases."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from samestep.common.judging.recorded.differences import ComparedTensors, apart_of, times_rounding
from samestep.common.judging.recorded.inputs import Finding, effects_of_loss, find_examples, find_targets, with_effect
from samestep.common.judging.recorded.lone_parameters import find_alone
from samestep.common.judging.recorded.past import Past
from samestep.common.judging.recorded.verdict import CLOSE, EXACT, FirstDifference, layer_of
from samestep.common.judging.recorded.walk import Walk
from samestep.common.judging.recorded.written import find_begun, find_others
from samestep.common.mistakes.gradient_arithmetic import phase_of
from samestep.common.mistakes.groups import has_other_groups, is_regrouped, other_options
from samestep.common.mistakes.mistake import few, near, of_norm, spell
from samestep.common.mistakes.rates import other_values, same_number
from samestep.common.mistakes.seen_tensor import SeenTensor, common_ratio
from samestep.common.steps.gradient_transforms import COMPUTED, clipped_ratio, scale_words
from samestep.common.steps.record import FOLLOWER
from samestep.common.steps.recorded_run import RunStep, Sums

REGROUPED = (
    "the optimizers' groups are the same in another order, or split differently: only the update of a parameter shows "
    "whether it is in the right one"
)
KINK = 0.01
"""The largest change in a gradient, relative to its norm, from a unit that rounding tips over a kink."""


def find(walk: Walk, one: RunStep, other: RunStep, past: tuple[Past, Past]) -> Finding | None:
    """Finds the first difference within a step.

    Args:
        walk: The walk over both runs.
        one: A's step.
        other: B's.
        past: The past of A and that of B.
    """
    if one.number < 0:
        return find_others(walk, one, other)
    checks: Sequence[Callable[[Walk, RunStep, RunStep], Finding | None]] = (
        find_examples,
        _scalars,
        _loss,
        _skipped,
        _gradient,
        functools.partial(find_alone, past=past),
        functools.partial(_update, past=past),
        _replicas,
    )
    all_found = [finding for check in checks if (finding := check(walk, one, other)) is not None]
    found = with_effect(walk, all_found)
    certain = next((finding for finding in found if finding.is_certain), None)
    if certain is None:
        return next(iter(found), None)
    certain = dataclasses.replace(certain, is_first=certain is found[0])
    walk.asides.update(dict.fromkeys(certain.beside))
    if certain.first.phase not in EXACT and (begun := find_begun(walk, one, other, past)):
        return dataclasses.replace(begun, is_first=certain.is_first)
    if certain.first.phase not in ("loss", "gradient") or certain.first.ratio is not None or certain.is_of_one:
        return certain
    is_split = [any(each.phase == "gradient" for each in step.splits) for step in (one, other)]
    if certain.first.phase == "gradient" and is_split[0] != is_split[1]:
        return certain  # this explains it; in a contrastive loss, each rank may number targets differently
    is_seen = all_found[0].first.phase == "data"  # and it has no effect
    rounded = None if is_seen else find_examples(walk, one, other, may_be_rounded=False)
    return find_targets(walk, one, other) or rounded or certain


def _scalars(walk: Walk, one: RunStep, other: RunStep) -> Finding | None:
    common = [name for name in one.scalars if name in other.scalars and name not in COMPUTED]
    differ = [name for name in common if not same_number(one.scalars[name], other.scalars[name])]
    split = [each for each in other.splits if each.phase == "scalar" and each not in one.splits]
    if not differ and not any(each.name not in COMPUTED for each in split):
        return None
    words = other_values(one.scalars, other.scalars, differ)[:4]
    words += [f"{each.name} differs on rank {each.ranks[0]} of B" for each in split[: not words]]
    ranks = () if differ else split[0].ranks
    if not split and is_regrouped(one.scalars, other.scalars, differ):
        walk.asides[REGROUPED] = None
        return None
    beside = (*filter(None, [other_options(one.scalars, other.scalars)]),)
    return Finding(FirstDifference(one.number, "hyper-parameters", "", ranks, ", ".join(words)), beside=beside)


def _loss(walk: Walk, one: RunStep, other: RunStep) -> Finding | None:
    if one.loss is None or other.loss is None:
        return None
    if one.loss == other.loss or (math.isnan(one.loss) and math.isnan(other.loss)):
        return None
    scale = walk.yardstick.of_loss(one.number, one.loss)
    apart = abs(one.loss - other.loss)
    apart = apart if math.isfinite(apart) else math.inf
    times = times_rounding(apart, float(scale.rounding[0]))
    if times <= scale.same:
        return None
    words = f"the loss is {one.loss:.9g} in A and {other.loss:.9g} in B"
    words += f", {times:,.0f} times what rounding makes" if math.isfinite(apart) else ""
    ratio = _factor(walk, one, other) if math.isfinite(apart) else None
    words = words if ratio is None else f"the loss and every gradient are {spell(ratio)} x A's"
    first, effects = FirstDifference(one.number, "loss", "", (), words, ratio), effects_of_loss(walk, one, other)
    return Finding(first, times > scale.different, shows_in=effects)


def _factor(walk: Walk, one: RunStep, other: RunStep) -> float | None:
    """Returns the factor between the losses, if every gradient differs by the same factor."""
    compared = walk.compare("gradient", one, other)
    ratio = common_ratio(walk.seen(compared)) if compared is not None else None
    return ratio if ratio is not None and one.loss and near(ratio, (other.loss or 0.0) / one.loss) else None


def _gradient(walk: Walk, one: RunStep, other: RunStep) -> Finding | None:
    compared = walk.compare("gradient", one, other)
    is_certain, differs = compared.apart_most if compared is not None else (False, np.zeros(1, bool))
    if compared is None or not differs.any():
        return None
    seen = {each.name: each for each in walk.seen(compared)}
    factor = clipped_ratio(one.scalars, other.scalars)
    clipped = [each.name in seen and seen[each.name].explained_by(factor) for each in walk.pairing.tensors]
    own = differs & ~np.array(clipped) if factor != 1 else differs  # before clipping
    own = own if own.any() else differs
    far = own & (compared.times > CLOSE)  # where numbers cancel, rounding may bring a tensor close to the threshold
    place = _first_backward(walk, far if far.any() else own)
    name = walk.pairing.tensors[place].name
    phase = phase_of((one.scalars, other.scalars), [*seen.values()])
    names = {each.name for each, flag in zip(walk.pairing.tensors, differs & ~compared.is_broken, strict=True) if flag}
    broken = [who for who, sums in (("A", compared.one), ("B", compared.other)) if not np.isfinite(sums.square[place])]
    words, ratio = _say(seen, names, name, f"in {broken[0]} alone" if len(broken) == 1 else "in both, but not alike")
    first = FirstDifference(one.number, phase, layer_of(name), (), words, ratio)
    return Finding(first, is_certain, _is_kink(walk, compared, differs, seen))


def _first_backward(walk: Walk, differs: np.ndarray) -> int:
    """Returns the index of the last tensor in model order that differs; buffers count only if no parameter differs."""
    of_parameters = differs & walk.pairing.are_parameters
    return int(np.flatnonzero(of_parameters if of_parameters.any() else differs)[-1])


def _say(seen: dict[str, SeenTensor], differing: set[str], name: str, broken: str) -> tuple[str, float | None]:
    """Describes how gradients differ: by a common factor, or else by how much that of `name` does; `differing` are finite."""
    if name not in differing:
        return f"the gradient of {name} is infinite or not a number {broken}", None
    if (ratio := common_ratio(list(seen.values()))) is not None:
        words = (
            f"every gradient is {spell(ratio)} x A's" if ratio else "B has no gradient for any tensor that has one in A"
        )
        return words, ratio
    apart = [each for each in seen.values() if each.name in differing]
    if len(apart) == len(differing) and (ratio := common_ratio(apart)) is not None:
        alone, factor = few([each.name for each in apart]), f"{spell(ratio)} x A's"
        if len(apart) > 1:
            return f"the gradients of {alone} alone differ: they are {factor}", ratio
        return f"the gradient of {alone} alone differs: it is {factor}", ratio
    count = f"{len(differing)} of {len(seen)} gradients differ"
    if (first := seen.get(name)) is None:
        return f"the gradient of {name} differs; {count}", None
    for who, has, own in (("A", "B", first.one), ("B", "A", first.other)):
        if not own.any():
            return f"in {who}, {name} has no gradient or one of zero, and in {has} it has another; {count}", None
    return f"the gradient of {name} is off by {of_norm(first.off)}; {count}", None


def _is_kink(walk: Walk, compared: ComparedTensors, differs: np.ndarray, seen: dict[str, SeenTensor]) -> bool:
    """Returns whether one unit was tipped: it moves the gradients below it a little, by different factors, and none above it."""
    order = [place for place, tensor in enumerate(walk.pairing.tensors) if tensor.name in seen]
    off = [seen[walk.pairing.tensors[place].name] for place in order if differs[place]]
    is_below = len(off) > 1 and not any(differs[place] for place in order[-1:])
    is_single = walk.a.header.is_float64 or common_ratio(off) is not None
    return is_below and not is_single and all(each.off < KINK for each in off)


def _skipped(walk: Walk, one: RunStep, other: RunStep) -> Finding | None:
    if one.is_skipped == other.is_skipped:
        return None
    who, scalars = ("A", one.scalars) if one.is_skipped else ("B", other.scalars)
    words = f"the gradient scaler of {who} alone skipped the update{scale_words(scalars)}"
    return Finding(FirstDifference(one.number, "update", "", (), words))


def _update(walk: Walk, one: RunStep, other: RunStep, past: tuple[Past, Past]) -> Finding | None:
    compared = walk.compare("weight", one, other)
    is_certain, differs = compared.apart_most if compared is not None else (False, np.zeros(1, bool))
    if compared is None or not differs.any():
        return None
    place = _first_backward(walk, differs)
    name = walk.pairing.tensors[place].name
    roles = {each.role for each, flag in zip(walk.pairing.tensors, differs, strict=True) if flag}
    if roles == {FOLLOWER} and walk.is_going_on(one, other):  # such a script follows after the last of its updates
        return None
    words = (
        f"the weights of {name} are apart by {compared.times[place]:,.0f} times what rounding makes; {int(differs.sum())} of "
        f"{len(differs)} tensors differ"
    )
    before, begun = (each.before("weight") for each in past)
    beside = [other_options(one.scalars, other.scalars)]
    is_of_options = has_other_groups(one.scalars, other.scalars)  # these move numbers differently without rounding
    is_kink = before is not None and not is_of_options and _is_turned(walk, one, other, compared, before)
    if before is not None and begun is not None:
        off = next(each.off for each in walk.seen(compared, (before, begun)) if each.name == name)
        beside.append(f"the update of {name} is off by {of_norm(off)}" if math.isfinite(off) else "")
    first = FirstDifference(one.number, "update", layer_of(name), (), words)
    return Finding(first, is_certain, is_kink, beside=(*filter(None, beside),))


def _is_turned(walk: Walk, one: RunStep, other: RunStep, compared: ComparedTensors, before: Sums) -> bool:
    """Returns whether rounding reversed the update of single numbers, whose gradients are near 0.

    This happens where updates follow signs, as Adam's first step does.

    Then gradients agree, few tensors differ, and none differs by more than twice what the update moves one of its numbers. Eight
    projections may show only half of that. If a tensor's whole move differs by a factor, no single number is the cause, unless
    the factor is near 1. That may be rounding as well, e.g. if Adam's bias correction is computed in float32. A tensor of one
    number whose gradient is more than rounding is not reversed.
    """
    gradients = walk.compare("gradient", one, other)
    if walk.a.header.is_float64 or gradients is None or (gradients.differs | gradients.is_unsure).any():
        return False
    is_pushed = gradients.one.norm > gradients.scale.same * gradients.scale.rounding
    if (compared.differs & (walk.pairing.sizes == 1) & is_pushed).any():
        return False
    moved = apart_of(compared.one, before) / np.sqrt(walk.pairing.sizes)
    is_small = apart_of(compared.one, compared.other) <= 4 * moved
    if 2 * compared.differs.sum() >= len(compared.differs) or not is_small[compared.differs].all():
        return False
    moves = walk.seen(compared, (before, before))
    ratios = [common_ratio([each]) if each.size > 1 else None for each in moves if each.differs]
    return any(ratio is None or near(ratio, 1.0) for ratio in ratios)


def _replicas(walk: Walk, one: RunStep, other: RunStep) -> Finding | None:
    """Finds what the ranks of only one of the two runs hold differently."""
    sides = [{split.phase for split in step.splits} for step in (one, other)]
    if bool(sides[0]) == bool(sides[1]):
        return None
    which, step = ("A", one) if sides[0] else ("B", other)
    first = step.splits[0]
    words = f"{first.phase} {first.name} differs between the ranks of {which}"
    layer = "" if first.phase in ("scalar", "skipped") else layer_of(first.name)
    return Finding(FirstDifference(one.number, "replicas", layer, first.ranks, words))

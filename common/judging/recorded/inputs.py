"""Compares what two recorded runs were given at a step: their examples and targets."""

import collections
import dataclasses
import math
from collections.abc import Sequence

from samestep.common.judging.recorded.differences import roundoff_of_weights
from samestep.common.judging.recorded.sensitivity import BLIND, resolution_of
from samestep.common.judging.recorded.verdict import FirstDifference
from samestep.common.judging.recorded.walk import Walk
from samestep.common.mistakes.mistake import few, near
from samestep.common.steps.argument_names import MASKS, called
from samestep.common.steps.gradient_transforms import CLIP_NORM
from samestep.common.steps.recorded_run import RunStep

IN_NO_LOSS = "one of the two calls its models on further examples, which changes no loss"
IDLE_CALLS = "one of the two calls its model more often on the same examples, which changes nothing"
FURTHER_CALLS = (
    "one of the two calls its models on further examples, which changes no loss and no gradient that both have"
)
OTHER_NUMBERS = (
    "the two call their models on different numbers, e.g. because one of them prepares its examples within the model: all losses "
    "and gradients that both have are the same"
)
COMPUTED_EXAMPLES = (
    "some examples are computed from the weights, e.g. points that a network has chosen: the same script gets different ones if "
    "it is run again from weights that rounding has moved"
)
ALL_ARGUMENTS = (
    "an example is everything that a model is called on for one row of the first dimension: no example is the same if one "
    "argument differs, such as the labels, or if batches with the time first are split into other columns"
)
OTHER_MASK = (
    "what an attention_mask or a padding_mask hides is not a part of an example: if A and B hide different places, "
    "everything else that the model is called on counts as different data"
)
IN_NONE = ("none",)
LONE = 10.0
"""How many times the visible share of a gradient a loss must be off before it is certain that only the loss differs."""
COMPUTED = ("loss", "gradient", "clipping", "update")
"""The phases in which a step computes something from its examples."""


@dataclasses.dataclass(frozen=True, eq=False)
class Finding:
    """A difference within a step.

    Attributes:
        first: Where and how the runs differ.
        is_certain: Whether it is certainly more than rounding.
        is_kink: Whether a unit that rounding tipped over a kink would look the same.
        is_first: Whether it is known that no earlier phase differs.
        has_other_targets: Whether it is the targets that differ.
        shows_in: Phases of which one must be the next that certainly differs, or this is no difference. Empty if it always is a
            difference, and IN_NONE if it never is.
        aside: The note to add if it is no difference.
        beside: Further notes, as clauses, to add if it is the first difference.
        is_of_one: Whether it concerns tensors that only one run has.
        is_likely: Whether any difference in the phases of `shows_in` is enough, even one that may be rounding.
    """

    first: FirstDifference
    is_certain: bool = True
    is_kink: bool = False
    is_first: bool = True
    has_other_targets: bool = False
    shows_in: tuple[str, ...] = ()
    aside: str = ""
    beside: tuple[str, ...] = ()
    is_of_one: bool = False
    is_likely: bool = False


def with_effect(walk: Walk, found: Sequence[Finding]) -> list[Finding]:
    """Returns the differences of a step, without those that have no effect.

    Args:
        walk: The walk over both runs; receives the notes on differences without effect.
        found: All differences, in the order of the phases.
    """
    kept, guessed = [], "" if walk.yardstick.is_measured else "update"
    for place, each in enumerate(found):
        later = [other for other in found[place + 1 :] if not other.is_of_one]
        effect = next((other.first.phase for other in later if other.is_certain and other.first.phase != guessed), "")
        shows = any(other.first.phase in each.shows_in for other in later)
        is_enough = not each.shows_in or effect in each.shows_in or (each.is_likely and shows)
        if is_enough or shows:
            kept.append(each if is_enough else dataclasses.replace(each, is_certain=False))
    first, shorter = {each.first for each in kept}, {FURTHER_CALLS: IN_NO_LOSS} if kept else {}
    dropped = [shorter.get(each.aside, each.aside) for each in found if each.aside and each.first not in first]
    walk.asides.update(dict.fromkeys(dropped))
    return kept


def find_examples(walk: Walk, one: RunStep, other: RunStep, may_be_rounded: bool = True) -> Finding | None:
    """Finds a difference between the examples of a step; returns None if there is none.

    Args:
        walk: The walk over both runs.
        one: A's step.
        other: B's.
        may_be_rounded: Whether examples of which none is equal may be the same in fewer digits.
    """
    if one.rows == other.rows:  # the usual case; counting takes longer
        return None
    a, b = one.examples, other.examples
    if a is None or b is None or a == b:
        return None
    alike = (a & b).total()
    if not alike and may_be_rounded and _rounds_otherwise(walk):
        return None
    ours, theirs = one.rows or {}, other.rows or {}
    ranks = tuple(rank for rank in theirs if sorted(ours.get(rank, ())) != sorted(theirs[rank]))
    ranks = ranks if 0 < len(ranks) < len(theirs) else ()
    of_arguments, are_others_same = _said_of_arguments(one, other)
    words = of_arguments or f"{alike} of A's {a.total()} examples are among the {b.total()} of B"
    is_likely = alike > 0 and a.total() == b.total() and one.of_arguments().keys() == other.of_arguments().keys()
    aside = FURTHER_CALLS if a <= b or b <= a else OTHER_NUMBERS
    if a.keys() == b.keys():
        words = f"A calls its model on {len(a)} examples {a.total()} times, and B on the same {b.total()} times"
        ranks, aside = (), IDLE_CALLS
    if a.total() == b.total() and min(one.number, walk.yardstick.last) in walk.yardstick.computed:
        aside = COMPUTED_EXAMPLES
    shows_in = ("loss",) if aside == FURTHER_CALLS and _has_loss_of_same(one, other) else COMPUTED
    is_seen = bool(aside) and (aside in walk.asides or _is_fine(walk, one, other))
    first = FirstDifference(one.number, "data", "", ranks, words)
    beside = (ALL_ARGUMENTS,) if not alike and not one.number and not of_arguments else ()
    beside = (OTHER_MASK,) if not are_others_same and _has_other_mask(one, other) else beside
    beside = (COMPUTED_EXAMPLES,) if aside == COMPUTED_EXAMPLES else beside
    return Finding(first, shows_in=shows_in if is_seen else (), aside=aside, beside=beside, is_likely=is_likely)


def _said_of_arguments(one: RunStep, other: RunStep) -> tuple[str, bool]:
    """Returns which arguments of the model differ, and whether the examples agree in all others; "" if that is unknown.

    A model without its mask is given padding as data in all arguments. So a missing mask is named first, whether or not the other
    arguments agree.
    """
    ours, theirs = one.of_arguments(), other.of_arguments()
    both = [name for name in ours if name in theirs]
    if any(len(ours[name]) != len(theirs[name]) for name in both):
        return "", False

    def apart(names: Sequence[str]) -> int:
        """Returns how many of A's examples are not among B's, taking the arguments of one call together."""
        of_calls = collections.defaultdict[int, list[str]](list)
        for name in names:
            of_calls[len(ours[name])].append(name)
        calls = of_calls.values()
        sides = [[zip(*(side[name] for name in own), strict=True) for own in calls] for side in (ours, theirs)]
        return sum((collections.Counter(a) - collections.Counter(b)).total() for a, b in zip(*sides, strict=True))

    changed = [name for name in both if apart([name])]
    same, moved = [name for name in both if name not in changed], list[str]()
    if apart(same):  # each has the same rows, combined differently
        likely = sorted(same, key=lambda name: ours[name] == theirs[name])
        moved = next(([name] for name in likely if not apart([each for each in same if each != name])), same)
        same = [name for name in same if name not in moved]
    said = [f"{called(name)} in {apart([*same, name])} of {len(ours[name])} examples" for name in (*changed, *moved)]
    masks = list[str]()
    for side, given, others in (("A", ours, theirs), ("B", theirs, ours)):
        alone = {name: f"{called(name)} in {side} alone" for name in given if name not in others}
        masks += [words for name, words in alone.items() if _is_mask(name)]
        said += alone.values()
    if not same and masks and both:
        return f"arguments of the model differ: {few([*masks, *(each for each in said if each not in masks)])}", False
    if not same or not said:
        return "", False
    order = " (the same rows in another order)" if moved else ""
    return f"arguments of the model differ: {few(said)}{order}; the others are the same", True


def _has_other_mask(one: RunStep, other: RunStep) -> bool:
    masks = [
        next((rows for name, rows in step.of_arguments().items() if _is_mask(name)), None) for step in (one, other)
    ]
    return masks[0] != masks[1]


def _is_mask(name: str) -> bool:
    return name.rpartition(".")[2] in MASKS


def _has_loss_of_same(one: RunStep, other: RunStep) -> bool:
    """Returns whether both have a loss, on equally many targets. It may agree by chance, e.g. before a layer of zeros."""
    targets = [step.targeted and step.targeted.total() for step in (one, other)]
    return one.loss is not None and other.loss is not None and targets[0] == targets[1]


def _is_fine(walk: Walk, one: RunStep, other: RunStep) -> bool:
    """Returns whether one more example would show in the loss and the gradients of a step."""
    gradient = walk.compare("gradient", one, other)
    resolution = None if gradient is None else resolution_of(gradient)
    return resolution is not None and resolution <= BLIND and one.loss is not None and other.loss is not None


def find_targets(walk: Walk, one: RunStep, other: RunStep) -> Finding | None:
    """Finds a difference between the targets, which explains a difference in the loss; returns None if there is none.

    Different targets alone are no difference, since they may have been computed, and rounded.

    Args:
        walk: The walk over both runs.
        one: A's step.
        other: B's.
    """
    a, b = one.targeted, other.targeted
    if a is None or b is None or a.total() != b.total() or not (alone := (a - b).total()):
        return None
    kinds = [step.counts.get("target_kinds") for step in (one, other)]
    if (alone == a.total() and _rounds_otherwise(walk)) or kinds[0] != kinds[1]:
        return None  # other kinds: one loss has a term that the other lacks, so targets cannot be compared
    what = "targets" if one.rows is not None else "data"
    words = f"the {what} of {alone} of {a.total()} examples are different in B"
    return Finding(FirstDifference(one.number, "data", "", (), words), has_other_targets=True)


def effects_of_loss(walk: Walk, one: RunStep, other: RunStep) -> tuple[str, ...]:
    """Returns the phases in which a difference of the loss must show; empty if it need not, IN_NONE if only the loss differs.

    If only the loss differs, its factor is taken out again later, or the part that differs has no gradient. Anything else would
    show in the gradients, provided that they show smaller relative differences than that of the loss.

    Args:
        walk: The walk over both runs; receives the factor between their losses.
        one: A's step.
        other: B's, whose loss differs.
    """
    assert one.loss is not None and other.loss is not None
    ratio = other.loss / one.loss if one.loss else math.nan
    if walk.lone_loss and near(ratio, walk.lone_loss):
        return IN_NONE  # even if another phase differs, or no tensors were recorded
    gradient = walk.compare("gradient", one, other)
    if gradient is None and math.isnan(walk.lone_loss) and not find_targets(walk, one, other):
        return IN_NONE  # the next recorded weights would show anything more
    resolution = None if gradient is None else resolution_of(gradient)
    if gradient is None or resolution is None or (gradient.differs | gradient.is_unsure).any():
        return ()
    norms = [step.scalars.get(CLIP_NORM, 0.0) for step in (one, other)]  # clipping may take a factor out as well
    is_large = LONE * resolution * max(abs(one.loss), abs(other.loss)) < abs(one.loss - other.loss) < math.inf
    if not is_large or not (norms[0] == norms[1] or near(*norms)) or find_targets(walk, one, other):
        return ()
    walk.lone_loss = math.nan if walk.lone_loss else ratio
    return IN_NONE


def _rounds_otherwise(walk: Walk) -> bool:
    """Returns whether one run keeps its weights, and so usually its examples, in fewer digits: then no hash is the same."""
    return roundoff_of_weights(walk.a.header) != roundoff_of_weights(walk.b.header)

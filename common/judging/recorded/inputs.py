"""What two recorded runs were given at a step: whether their examples and targets are the same."""

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
    "the two call their models on other numbers, as where one of them prepares its examples within the model: all losses and "
    "gradients that both have are the same"
)
COMPUTED_EXAMPLES = (
    "some examples are computed from the weights, as points that a network has chosen: run again from weights that rounding has "
    "moved, the same script has different ones"
)
ALL_ARGUMENTS = (
    "an example is all that a model is called on for one row of the first dimension: no example is the same where one "
    "argument differs, such as the labels, or where batches with the time first are cut into other columns"
)
OTHER_MASK = (
    "what an attention_mask or a padding_mask hides is no part of an example: where it hides other places, "
    "everything else that the model is called on counts as different data"
)
IN_NONE = ("none",)
LONE = 10.0
"""By how many times the visible share of a gradient a loss has to be off for it to be certain that the loss alone differs."""
COMPUTED = ("loss", "gradient", "clipping", "update")
"""The phases in which a step computes something from its examples."""


@dataclasses.dataclass(frozen=True, eq=False)
class Finding:
    """A difference within a step.

    Attributes:
        first: Where and how.
        is_certain: Whether it is more than rounding for certain.
        is_kink: Whether a unit that rounding tipped over a kink would look like that.
        is_first: Whether it is known that no phase before it differs.
        has_other_targets: Whether the targets are what differs.
        shows_in: Phases one of which has to be the next that differs for certain, or this is no difference; empty if it always
            is one, and IN_NONE if it never is.
        aside: The note on it if it is no difference.
        beside: Further notes, as clauses, if it is the first difference.
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
    """Returns the differences of a step without those that have no effect and so are no differences.

    Args:
        walk: Over both runs; gets the notes on those without effect.
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
    """Returns the difference of the examples of a step; None if there is none.

    Args:
        walk: Over both runs.
        one: A's step.
        other: B's.
        may_be_rounded: Whether examples may be the same in fewer digits if none of them is equal.
    """
    if one.rows == other.rows:  # as a rule, and counting takes longer
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
    """Returns which arguments of the model differ, and whether the examples are the same in all others; "" if nobody knows.

    Without its mask, a model is given padding as data, in all arguments: then the mask is said first, whether others are the same
    or not.
    """
    ours, theirs = one.of_arguments(), other.of_arguments()
    both = [name for name in ours if name in theirs]
    if any(len(ours[name]) != len(theirs[name]) for name in both):
        return "", False

    def apart(names: Sequence[str]) -> int:
        """Returns how many of A's examples, as the arguments of one call together have them, are not among those of B."""
        of_calls = collections.defaultdict[int, list[str]](list)
        for name in names:
            of_calls[len(ours[name])].append(name)
        calls = of_calls.values()
        sides = [[zip(*(side[name] for name in own), strict=True) for own in calls] for side in (ours, theirs)]
        return sum((collections.Counter(a) - collections.Counter(b)).total() for a, b in zip(*sides, strict=True))

    changed = [name for name in both if apart([name])]
    same, moved = [name for name in both if name not in changed], list[str]()
    if apart(same):  # each has the same rows, put together otherwise
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
    """Returns whether both have a loss, of as many targets. It may be alike by chance, as before a layer of zeros."""
    targets = [step.targeted and step.targeted.total() for step in (one, other)]
    return one.loss is not None and other.loss is not None and targets[0] == targets[1]


def _is_fine(walk: Walk, one: RunStep, other: RunStep) -> bool:
    """Returns whether the loss and the gradients of a step would show one more example."""
    gradient = walk.compare("gradient", one, other)
    resolution = None if gradient is None else resolution_of(gradient)
    return resolution is not None and resolution <= BLIND and one.loss is not None and other.loss is not None


def find_targets(walk: Walk, one: RunStep, other: RunStep) -> Finding | None:
    """Returns the difference of the targets, which explains a difference of the loss; None if there is none.

    Targets are no difference on their own, since they may have been computed, and rounded.

    Args:
        walk: Over both runs.
        one: A's step.
        other: B's.
    """
    a, b = one.targeted, other.targeted
    if a is None or b is None or a.total() != b.total() or not (alone := (a - b).total()):
        return None
    kinds = [step.counts.get("target_kinds") for step in (one, other)]
    if (alone == a.total() and _rounds_otherwise(walk)) or kinds[0] != kinds[1]:
        return None  # the latter: one loss has a term that the other has not, so nobody knows whether the targets are others
    what = "targets" if one.rows is not None else "data"
    words = f"the {what} of {alone} of {a.total()} examples are different in B"
    return Finding(FirstDifference(one.number, "data", "", (), words), has_other_targets=True)


def effects_of_loss(walk: Walk, one: RunStep, other: RunStep) -> tuple[str, ...]:
    """Returns the phases in which a loss that differs has to show; empty if it need not, IN_NONE if only the loss differs.

    Then its factor is taken out again, or what differs has no gradient. Anything else would show in the gradients, if they would
    show a smaller share of them than that of the loss.

    Args:
        walk: Over both runs; is told by which factor their losses differ.
        one: A's step.
        other: B's, whose loss differs.
    """
    assert one.loss is not None and other.loss is not None
    ratio = other.loss / one.loss if one.loss else math.nan
    if walk.lone_loss and near(ratio, walk.lone_loss):
        return IN_NONE  # also where another phase differs, or the tensors were not looked at
    gradient = walk.compare("gradient", one, other)
    if gradient is None and math.isnan(walk.lone_loss) and not find_targets(walk, one, other):
        return IN_NONE  # the weights after the next step that is looked at would show more
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
    """Returns whether one of the two keeps its weights in fewer digits, as a rule its examples too: then no hash is the same."""
    return roundoff_of_weights(walk.a.header) != roundoff_of_weights(walk.b.header)

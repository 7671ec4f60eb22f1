"""The groups of parameters in optimizers, each with its own hyper-parameters: "lr", "lr/1" for the second group, and so on.

This file also has mistakes in optimizers that take turns, as in a GAN: a wrong turn, or gradients that a `detach` should stop.
"""

import collections
from collections.abc import Collection, Iterable, Mapping

from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.gradient_arithmetic import GRADIENTS
from samestep.common.mistakes.mistake import Mistake, Words, few, names_of
from samestep.common.mistakes.rates import OF_GRADIENTS, place_of, same_number
from samestep.common.mistakes.seen_tensor import differing
from samestep.common.steps.gradient_transforms import GRADIENT_PHASES


def is_regrouped(one: Mapping[str, float], other: Mapping[str, float], differing: Iterable[str]) -> bool:
    """Returns whether two steps have the same groups, in another order or with one of them split into several equal ones.

    The same hyper-parameters then have other places. Whether a parameter has moved to another group shows in its update.

    Args:
        one: The scalars of one step.
        other: The scalars of the other step.
        differing: The names of the scalars that differ, all of which must belong to groups.
    """
    names = {place_of(name)[0] for scalars in (one, other) for name in scalars if place_of(name)[1]}
    return all(place_of(name)[0] in names for name in differing) and _have_alike(one, other, names)


def has_other_groups(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Returns whether a group of one step has options that no group of the other has, among the options that both know.

    Args:
        one: The scalars of one step.
        other: The scalars of the other step.
    """
    known = ({place_of(name)[0] for name in scalars} for scalars in (one, other))
    return not _have_alike(one, other, set.intersection(*known) - {*OF_GRADIENTS})


def _have_alike(one: Mapping[str, float], other: Mapping[str, float], names: Collection[str]) -> bool:
    groups, others = groups_of(one, names), groups_of(other, names)
    pairs = ((groups, others), (others, groups))
    return all(any(_is_alike(each, group) for group in theirs) for ours, theirs in pairs for each in ours)


def other_options(one: Mapping[str, float], other: Mapping[str, float]) -> str:
    """Returns a clause on the options that only the optimizers of one run have; "" if both have the same options.

    Args:
        one: The scalars of a step of A.
        other: The scalars of a step of B.
    """
    a, b = (dict.fromkeys(place_of(name)[0] for name in each if name not in OF_GRADIENTS) for each in (one, other))
    alone = [(who, few([name for name in own if name not in rest])) for who, own, rest in (("A", a, b), ("B", b, a))]
    return ", and ".join(f"only the optimizer of {who} has the options {names}" for who, names in alone if names)


def _not_applied(evidence: Evidence) -> Words | None:
    """Checks that B updates only some of A's groups and parameters. Parameters not trained before may be frozen in B."""
    scalars = evidence.a.scalars, evidence.b.scalars
    names = {place_of(name)[0] for each in scalars for name in each if name not in OF_GRADIENTS}
    groups, others = (groups_of(each, names) for each in scalars)
    left = list(groups)
    for other in others:
        found = next((place for place, group in enumerate(left) if _is_alike(group, other)), None)
        if found is None:
            return None
        del left[found]
    still = [each for each in evidence.driven if not each.other.any()]
    if not left or not others or not still or not all(each.one.any() for each in evidence.driven):
        return None
    own = {each.name for each in still}
    earlier = [each.earlier for each in evidence.gradients if each.name in own and each.earlier is not None]
    if earlier and not any(each.any() for each in earlier):
        return None
    return {"step": str(evidence.step), "names": names_of(still), "less": str(len(others)), "more": str(len(groups))}


def _is_alike(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return one.keys() == other.keys() and all(same_number(value, other[name]) for name, value in one.items())


def groups_of(scalars: Mapping[str, float], names: Collection[str] = ()) -> list[dict[str, float]]:
    """Returns the hyper-parameters of each group.

    Args:
        scalars: The scalars of a step.
        names: The names of the hyper-parameters; all unless given.
    """
    found = collections.defaultdict[int, dict[str, float]](dict)
    for key, value in scalars.items():
        name, place = place_of(key)
        if not names or name in names:
            found[place][name] = value
    return [*found.values()]


def trained_apart(evidence: Evidence) -> tuple[list[str], list[str]] | None:
    """Returns the parameters that A and B train at the step; None if they have some in common, or if that is unknown.

    Args:
        evidence: The evidence of the step.
    """
    ours = [*(each.name for each in evidence.gradients if each.one.any()), *evidence.a.trained_alone]
    theirs = [*(each.name for each in evidence.gradients if each.other.any()), *evidence.b.trained_alone]
    return None if not ours or not theirs or {*ours} & {*theirs} else (ours, theirs)


def _other_turn(evidence: Evidence) -> Words | None:
    """Checks that the runs update different parameters, of which only one run updates those that both updated a step before."""
    apart = trained_apart(evidence)
    before = [each.name for each in evidence.gradients if each.earlier is not None and each.earlier.any()]
    is_of_both = not (evidence.a.trained_alone or evidence.b.trained_alone)  # else one continues with a new network
    if apart is None or not before or not is_of_both or not any({*before} <= {*names} for names in apart):
        return None  # of those that both updated, some may have had a gradient of zero
    return {"step": str(evidence.step), "one": few(apart[0]), "other": few(apart[1])}


def _added(evidence: Evidence) -> Words | None:
    """Checks that B's gradients are A's plus what earlier steps left there."""
    apart = differing(evidence.gradients)
    is_that = (not each.differs if each.strays is None else each.made_by(each.strays[1]) for each in evidence.gradients)
    return {"count": str(len(apart)), "total": str(len(evidence.gradients))} if apart and all(is_that) else None


GROUPS = (
    Mistake(
        "optimizer_not_applied",
        ("hyper-parameters", *GRADIENTS),
        _not_applied,
        "step {step} updates {names} in {a} alone: {b} updates {less} of the {more} groups of parameters that {a} does, as when "
        "an optimizer is not applied, another one is applied twice, or those weights are frozen",
    ),
)
STRAYS = (
    Mistake(
        "stray_gradients",
        GRADIENT_PHASES,
        _added,
        "{count} of {total} gradients of {b} are {a}'s plus what the backward pass of an earlier step left there, one "
        "that updated other parameters: a `detach` is missing, or a `zero_grad` before this step's pass",
    ),
)
TURNS = (
    Mistake(
        "other_turn",
        ("data", "hyper-parameters", *GRADIENTS),
        _other_turn,
        "step {step} updates {one} in A, and {other} in B: their optimizers take turns, and one of the two switches "
        "at another step",
    ),
)

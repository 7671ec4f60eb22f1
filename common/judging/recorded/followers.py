"""Pairs networks of two records that are numbered and not named: networks of one class, averages of weights, teachers.

Networks that only one script has are numbered as well, and may shift the numbers of the others. So networks are paired by what
they do.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from samestep.common.steps.record import FOLLOWER
from samestep.common.steps.recorded_run import RecordedRun, Sums

SAME_START = 1e-5
"""How far apart the initial weights of a network that no optimizer updates may be, relative to their norm."""
_FRAMES = 11
"""The initial weights, and those after the steps at which every record holds them: an average may begin late, and shards of
equal weights differ by rounding."""


def pair_followers(a: RecordedRun, b: RecordedRun) -> tuple[dict[int, int], list[int]]:
    """Pairs the networks of A with those of B of the same shapes, beginning with those that move most alike.

    Args:
        a: One run.
        b: The other run.

    Returns:
        The place in B of each place in A, and the places in A of networks whose initial numbers differ from B's: such a network
        may be left over from something else.
    """
    found, strangers = dict[int, int](), list[int]()
    ours, theirs = _networks(a), _networks(b)
    weights = [run.first_sums(_FRAMES, "weight") if ours and theirs else [] for run in (a, b)]
    pairs = [
        (_unlike(weights, [*together], [*together.values()]), together)
        for own, other in itertools.product(ours, theirs)
        if (together := _together(a, own, b, other))
    ]
    for (is_stranger, *_), together in sorted(pairs, key=lambda pair: pair[0]):
        if not found.keys() & together.keys() and not {*found.values()} & {*together.values()}:
            found |= together
            strangers += together if is_stranger else ()
    return found, strangers


def _networks(run: RecordedRun) -> list[dict[str, int]]:
    """Returns, for each network, the places of its tensors by their names within it."""
    found: dict[str, dict[str, int]] = {}
    for place, tensor in enumerate(run.tensors):
        if tensor.role == FOLLOWER:
            network, _, name = tensor.name.partition(".")
            found.setdefault(network, {})[name] = place
    return [*found.values()]


def _together(a: RecordedRun, own: dict[str, int], b: RecordedRun, other: dict[str, int]) -> dict[int, int]:
    """Returns the place in B of each place in A, by name or else in order; empty if the shapes differ."""
    places = [other[name] for name in own] if own.keys() == other.keys() else [*other.values()]
    shapes = [[run.tensors[place].piece.shape for place in each] for run, each in ((a, own.values()), (b, places))]
    return dict(zip(own.values(), places, strict=True)) if shapes[0] == shapes[1] else {}


def _unlike(weights: Sequence[Sequence[Sums]], own: Sequence[int], places: Sequence[int]) -> tuple[bool, int, float]:
    """Returns whether two networks start differently, how many tensors are zero in only one, and how far apart the networks are.

    Args:
        weights: The weights of A and of B, frame by frame.
        own: The places in A.
        places: The places in B.
    """
    is_stranger, alone, total = False, 0, 0.0
    for number, (one, other) in enumerate(zip(*weights, strict=False)):
        if number == 0:
            apart = np.abs(one.projections[own] - other.projections[places])
            is_stranger = not (apart.max(axis=1) <= SAME_START * one.norm[own]).all()
        more, apart_by = one.unlike(other, own, places)
        alone, total = alone + more, total + apart_by
    return is_stranger, alone, total


def pair_by_class(a: RecordedRun, b: RecordedRun) -> dict[int, int]:
    """Pairs whole networks of one class, the most alike first, where the runs have different ones or different numbers of them.

    For example, only one run may train the teacher, which has the student's class: the numbers in the names then mean nothing.

    Args:
        a: One run.
        b: The other run.

    Returns:
        The place in B of each place in A.
    """
    found = dict[int, int]()
    ours, theirs = map(_of_classes, (a, b))
    for name, own in ours.items():
        others = theirs.get(name, [])
        if [[*each] for each in own] == [[*each] for each in others]:
            continue
        sums = [run.first_sums(2, "gradient", "weight") for run in (a, b)]
        pairs = [(one, other) for one, other in itertools.product(own, others) if [*one] == [*other]]
        for one, other in sorted(pairs, key=lambda pair: _unlikes(sums, *([*each.values()] for each in pair))):
            if not found.keys() & {*one.values()} and not {*found.values()} & {*other.values()}:
                found.update(zip(one.values(), other.values(), strict=True))
    return found


def _of_classes(run: RecordedRun) -> dict[str, list[dict[object, int]]]:
    """Returns the networks of each class, if there are several: the place of each tensor by its name in it, role and shape."""
    networks: dict[str, dict[object, int]] = {}
    for place, each in enumerate(run.tensors):
        if each.network:
            key = each.name.removeprefix(f"{each.network}."), each.role, each.piece.shape
            networks.setdefault(each.network, {})[key] = place
    found: dict[str, list[dict[object, int]]] = {}
    for network, places in networks.items():
        found.setdefault(network.partition(".")[0], []).append(places)
    return found


def _unlikes(sums: Sequence[Sequence[Sums]], own: Sequence[int], places: Sequence[int]) -> list[tuple[int, float]]:
    """Returns how unlike tensors of A and of B are in each of the first frames."""
    return [one.unlike(other, own, places) for one, other in zip(*sums, strict=False)]


def pair_only_network(a: RecordedRun, b: RecordedRun) -> dict[int, int]:
    """Pairs the only network of one run with the one that is most like it among several in the other run.

    Names have a prefix if there are several networks. An encoder and its copy have the same shapes and initial weights, so the
    match is the one that gets gradients and whose first update is the same.

    Args:
        a: One run.
        b: The other run.

    Returns:
        The place in B of each place in A.
    """
    for is_swapped, (alone, several) in enumerate(((a, b), (b, a))):
        own = [place for place, tensor in enumerate(alone.tensors) if tensor.role != FOLLOWER]
        trained = [alone.tensors[place] for place in own]
        names = [(tensor.name, tensor.role, tensor.piece.shape) for tensor in trained]
        places = {(each.name, each.role, each.piece.shape): place for place, each in enumerate(several.tensors)}
        first = names[0][0] if names else ""
        prefixes = dict.fromkeys(name.removesuffix(first) for name, *_ in places if name.endswith(first))
        networks = [[places.get((prefix + name, role, shape)) for name, role, shape in names] for prefix in prefixes]
        whole = [[place for place in each if place is not None] for each in networks if each and None not in each]
        if whole:
            sums = [run.first_sums(2, "gradient", "weight") for run in (alone, several)]
            best = min(whole, key=lambda each: _unlikes(sums, own, each))
            return dict(zip(best, own, strict=True) if is_swapped else zip(own, best, strict=True))
    return {}

"""Which network that no optimizer updates is which of another record: averages of the weights, teachers and target networks.

Their names only count them, and a copy that one script alone keeps is counted as well. So what they do decides.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from samestep.common.steps.record import FOLLOWER
from samestep.common.steps.recorded_run import RecordedRun, Sums

SAME_START = 1e-5
"""How far the initial weights of a network may be apart that no optimizer updates, relative to their norm."""
_FRAMES = 11
"""The initial weights, and those after the steps at which every record holds them: an average may begin late, and shards of the
same weights are apart by rounding."""


def pair_followers(a: RecordedRun, b: RecordedRun) -> tuple[dict[int, int], list[int]]:
    """Pairs the networks of A with those of B that have their shapes, those first that move most alike.

    Args:
        a: The one.
        b: The other.

    Returns:
        The place in B of each place in A, and the places in A of networks that start from other numbers than in B: such a network
        may be left from something else.
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
    """Returns the places of the tensors of each network, by their names within it."""
    found: dict[str, dict[str, int]] = {}
    for place, tensor in enumerate(run.tensors):
        if tensor.role == FOLLOWER:
            network, _, name = tensor.name.partition(".")
            found.setdefault(network, {})[name] = place
    return [*found.values()]


def _together(a: RecordedRun, own: dict[str, int], b: RecordedRun, other: dict[str, int]) -> dict[int, int]:
    """Returns the place in B of each place in A, by name or else in order; nothing if they have other shapes."""
    places = [other[name] for name in own] if own.keys() == other.keys() else [*other.values()]
    shapes = [[run.tensors[place].piece.shape for place in each] for run, each in ((a, own.values()), (b, places))]
    return dict(zip(own.values(), places, strict=True)) if shapes[0] == shapes[1] else {}


def _unlike(weights: Sequence[Sequence[Sums]], own: Sequence[int], places: Sequence[int]) -> tuple[bool, int, float]:
    """Returns whether two networks start from other numbers, how many tensors are zero in one alone, and how far apart they are.

    Args:
        weights: Those of A and of B, frame by frame.
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

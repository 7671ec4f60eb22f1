"""Finds the calls of two models that certainly belong together: those of layers whose parameters were matched."""

from collections.abc import Iterator, Sequence

import numpy as np

from samestep.common.porting.array_layouts import family, has_same_numbers
from samestep.common.porting.matching.matching import Matching
from samestep.common.porting.model_trace import LayerCall

IN_PIECES = ("split", "packed")
"""The changes that turn one call on one side into three on the other."""


def anchors_of(
    matching: Matching, source: Sequence[LayerCall], target: Sequence[LayerCall]
) -> dict[tuple[int, int], int | None]:
    """Returns pairs of calls of matched layers, each with the source's call that is given the target's input; None if unknown.

    If several calls on one side do what one call does on the other, the last of them computes the result. Of
    convolutions, which follow each other, the first is given the same input. For other layers, that is not known.

    Args:
        matching: The matching of the parameters.
        source: The source's calls.
        target: The target's calls.
    """
    places = [places_of(calls) for calls in (source, target)]
    both = [pair.layers for pair in matching.pairs if pair.change not in IN_PIECES]
    names = {(one.call, other.call): None for one, other in both if one.call in places[0] and other.call in places[1]}
    last_of, last_in = dict(list(names)), {other: one for one, other in names}
    first_in = {other: one for one, other in reversed(names)}
    found: dict[tuple[int, int], int | None] = {}
    for one, other in names:
        if last_of[one] == other and last_in[other] == one:
            is_alone = sum(one == ours or other == theirs for ours, theirs in names) == 1
            is_chain = family(source[places[0][one][0]]) == family(target[places[1][other][0]]) == "convolution"
            first = places[0][first_in[other]] if is_alone or is_chain else [None] * len(places[0][one])
            partners = _partners(places[0][one], places[1][other], source, target)
            found |= {(i, j): start for (i, j), start in zip(partners, first, strict=False)}
    return found


def _partners(
    ours: Sequence[int], theirs: Sequence[int], source: Sequence[LayerCall], target: Sequence[LayerCall]
) -> Iterator[tuple[int, int]]:
    """Pairs the calls of a layer with its counterpart's: by equal inputs, then by the size of the output, then in order."""
    left = list(theirs)
    for i in ours[: len(left)]:
        one, best = source[i], left[0]
        if len(left) > 1:
            best = min(left, key=lambda j: (not _is_given(one, target[j]), one.output.size != target[j].output.size))
        left.remove(best)
        yield i, best


def _is_given(one: LayerCall, other: LayerCall) -> bool:
    """Returns whether two calls are given the same numbers, in any order."""
    return has_same_numbers(*(call.inputs[0] if call.inputs else np.zeros(0) for call in (one, other)))


def places_of(calls: Sequence[LayerCall]) -> dict[str, list[int]]:
    """Returns the places of the calls by the names of their layers."""
    places: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        places.setdefault(call.name, []).append(number)
    return places

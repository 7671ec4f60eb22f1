"""Compares the places of layers that are switched off while two implementations are compared: dropout before a layer, or after.

Where such layers are shows only in the numbers that flow through them: layers that see the same numbers are in the same
place. So are layers that are separated only by what does not affect dropping: a ReLU, a positive factor, a reshape or a
permutation.
"""

import itertools
from collections.abc import Collection, Iterator

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.array_layouts import family, has_same_numbers, is_same, without_steps
from samestep.common.porting.case import PortCase, PortVerdict, first_difference
from samestep.common.porting.model_trace import LayerCall, ModelTrace
from samestep.common.workload.models.layer import Stilled

_Place = tuple[LayerCall, Stilled]
"""A call of a layer, and what is switched off in it."""
UNKNOWN = "the place of {feature} was not compared everywhere: it differs, and that may matter in training"
_MIXING = ("linear", "convolution", "normalization")
"""Families whose result depends on whether elements are dropped before or after them."""


def compare_places(case: PortCase, bound: float) -> PortVerdict | None:
    """Finds the first layer before which one side drops elements, and after which the other side does.

    This is certain only if all places that differ are of this kind; otherwise `notes_on_places` says that they were not
    compared.

    Args:
        case: Both implementations.
        bound: Not used; the forward pass has already compared these numbers.
    """
    ours, theirs = _left(case)
    found = [_passed(case, *both) for both in zip(ours, theirs, strict=False)]
    if not found or len(ours) != len(theirs) or None in found:
        return None
    layer, is_first_before = next(each for each in found if each is not None)
    (one, stilled), (other, _) = ours[0], theirs[0]
    said = ("the input", "the output") if is_first_before else ("the output", "the input")
    cause = f"{{a}} drops elements of {said[0]} of `{layer.source.name}`, {{b}} of {said[1]} of `{layer.target.name}`"
    seen = f"{stilled.feature} was switched off for the comparison, and it stands elsewhere"
    names = one.name, other.name
    return first_difference(stilled.feature, f"{{a:key}} `{one.name}`, {{b:key}} `{other.name}`", seen, cause, names)


def notes_on_places(case: PortCase) -> tuple[str, ...]:
    """Returns the note that the places could not be compared; empty if they could.

    Args:
        case: Both implementations, between which no difference was found.
    """
    ours, theirs = _left(case)
    named = dict.fromkeys(stilled.feature for _, stilled in (*ours, *theirs))
    return tuple(UNKNOWN.format(feature=feature) for feature in named)


def _left(case: PortCase) -> tuple[list[_Place], list[_Place]]:
    """Returns the calls on each side that have no counterpart at the same place."""
    ours, theirs = ([*_places(trace, case.accepted)] for trace in (case.source, case.target))
    prints = {id(call): without_steps(call.output) for call, _ in (*ours, *theirs)}
    for one in list(ours):
        for other in theirs:
            if is_same(prints[id(one[0])], prints[id(other[0])]):
                ours = [place for place in ours if place is not one]
                theirs = [place for place in theirs if place is not other]
                break
    return ours, theirs


def _places(trace: ModelTrace, accepted: Collection[str]) -> Iterator[_Place]:
    """Yields the calls of layers that do nothing except what is switched off and not accepted."""
    for call in trace.calls:
        stilled = trace.stilled.get(call.name)
        if stilled and stilled.share and family(call) == stilled.feature and stilled.feature not in accepted:
            yield call, stilled


def _passed(case: PortCase, one: _Place, other: _Place) -> tuple[Aligned, bool] | None:
    """Returns the layer that has one call before it and the other after it, and whether the source's is before it, or None."""
    if one[1] != other[1] or one[1].what != "elements":
        return None  # whole channels may be dropped before or after a layer that does not mix them
    for layer, is_before in itertools.product(case.layers, (True, False)):
        sides = ((one[0], layer.source, is_before), (other[0], layer.target, not is_before))
        is_mixing = layer.family in _MIXING and layer.source.settings.get("groups", 1) == 1
        if is_mixing and all(_is_at(*side) for side in sides):
            return layer, is_before
    return None


def _is_at(call: LayerCall, layer: LayerCall, is_before: bool) -> bool:
    """Returns whether a call stands right before a layer or right after it, by the numbers that it sees."""
    seen = layer.inputs[:1] if is_before else (layer.output,)
    return any(has_same_numbers(call.output, each) for each in seen)

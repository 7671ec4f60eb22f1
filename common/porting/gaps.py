"""What each side does between two layers that are aligned, and layers that the two run in another order."""

from collections.abc import Sequence

from samestep.common.porting.alignment import OUTPUTS, Aligned
from samestep.common.porting.array_layouts import Both, apart, find_axes, is_same, turned
from samestep.common.porting.case import PortCase
from samestep.common.porting.functions import FUNCTION, moves, takes_part
from samestep.common.porting.ways.between import Gap
from samestep.common.porting.ways.formulas import ACTIVATIONS
from samestep.common.porting.ways.identify import SAME, Settings

_NEAR = 2
"""How many calls after a layer an activation of its result may be."""


def find_gap(case: PortCase, number: int, layer: Aligned) -> Gap:
    """Returns what each side computes before a layer that has no counterpart on the other side.

    Args:
        case: Both implementations.
        number: The place of the layer among those that are aligned.
        layer: The layer.
    """
    sides = []
    for side, trace in enumerate((case.source, case.target)):
        place = {id(call): at for at, call in enumerate(trace.calls)}
        aligned = [(each.source, each.target)[side] for each in case.layers]
        end = place.get(id(aligned[number]), len(trace.calls))
        layers = [call for each, call in zip(case.layers[:number], aligned, strict=False) if each.family != FUNCTION]
        # After the last layer before; functions that agree may come after what does not.
        start = max((at + 1 for call in layers if (at := place.get(id(call), end)) < end), default=0)
        taken, between = set(map(id, aligned)), trace.calls[start:end]
        sides.append([call for call in between if id(call) not in taken and not (moves(call) and not takes_part(call))])
    return sides[0], sides[1]


def common_inputs(before: Sequence[Aligned], layer: Aligned) -> Both | None:
    """Finds what both sides of a layer were computed from, where one side padded it first.

    Args:
        before: The layers before.
        layer: The layer, whose inputs have other shapes on the two sides.
    """
    if not (layer.source.inputs and layer.target.inputs):
        return None
    axes = find_axes(layer.family, layer.source, layer.target)
    one, other = turned(layer.source.inputs[0], axes), layer.target.inputs[0]
    for row in reversed(before):
        if apart(row.output[0], one) == 0 or apart(row.output[1], other) == 0:
            return row.output
    return None


def explain_order(case: PortCase, number: int, layer: Aligned) -> str:
    """Why what goes into a layer differs, if the other side runs other layers before it; "" if it does not.

    Args:
        case: Both implementations.
        number: The place of the layer among those that are aligned.
        layer: The layer.
    """
    if layer.source.kind == OUTPUTS or not layer.source.inputs:
        return ""
    places = {id(call): at for at, call in enumerate(case.target.calls)}
    here = places.get(id(layer.target), -1)
    later = [each for each in case.layers[number + 1 :] if each.family not in (FUNCTION, OUTPUTS)]
    sooner = [each for each in later if places.get(id(each.target), len(places)) < here]
    takes = [each for each in sooner if each.target.inputs and is_same(layer.source.inputs[0], each.target.inputs[0])]
    if not takes:
        return ""
    last = max(sooner, key=lambda each: places[id(each.target)])
    return (
        f"{{a}} runs `{layer.source.name}` before `{takes[0].source.name}`, {{b}} runs `{layer.target.name}` after "
        f"`{last.target.name}`: in {{b}}, `{takes[0].target.name}` takes what `{layer.source.name}` takes in {{a}}"
    )


def explain_place(case: PortCase, layer: Aligned, found: tuple[Settings, Settings]) -> str:
    """Returns that one side applies an activation before a layer and the other one after it; "" if it is left out.

    Args:
        case: Both implementations.
        layer: The layer.
        found: What stands before it on each side.
    """
    names = [str(each.get("activation", "none")) for each in found]
    if names.count("none") != 1:
        return ""
    lacks, name = names.index("none"), max(names, key=lambda each: each != "none")
    call, calls = (layer.source, layer.target)[lacks], (case.source, case.target)[lacks].calls
    later = calls[[id(each) for each in calls].index(id(call)) + 1 :] if layer.source.kind != OUTPUTS else ()
    wanted = ACTIVATIONS[name](call.output) if name in ACTIVATIONS else None
    if wanted is None or not any(apart(each.output, wanted) <= SAME for each in later[:_NEAR]):
        return ""
    sides = ("{b}", "{a}") if lacks == 0 else ("{a}", "{b}")
    return f"{sides[0]} applies {name} before `{call.name}`, {sides[1]} after it"

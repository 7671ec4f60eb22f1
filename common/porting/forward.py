"""Goes through the layers in the order of execution to the first that differs, and says why it does."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from samestep.common.porting.alignment import OUTPUTS, Aligned
from samestep.common.porting.array_layouts import FLOAT32, Both, apart, apart_but_hidden, find_axes, is_same, turned
from samestep.common.porting.case import GROWTH, LAYER_BOUND, PortCase, PortVerdict, differ, different, off
from samestep.common.porting.functions import FUNCTION, moves, takes_part
from samestep.common.porting.ways.between import Gap, identify_between
from samestep.common.porting.ways.formulas import ACTIVATIONS
from samestep.common.porting.ways.identify import FLOAT32 as ROUNDED
from samestep.common.porting.ways.identify import SAME, Settings, identify_both
from samestep.common.porting.ways.layers import WAYS
from samestep.common.porting.ways.one_step import few
from samestep.common.porting.ways.turns import turn
from samestep.common.porting.words import say
from samestep.common.workload.models.layer import ParameterLayer

_NEAR = 2
"""How many calls after a layer its activation may come."""


def go_forward(case: PortCase) -> tuple[PortVerdict | None, list[Aligned], float]:
    """Returns the first difference, the layers whose constants differ in float32, and the bound for all layers after them.

    A deviation that is no more than a constant in float32 explains, and that has no other cause, counts as such a constant.
    Layers after it may be off by a little more.
    """
    constants: list[Aligned] = []
    bound = LAYER_BOUND
    for number, layer in enumerate(case.layers):
        if layer.family == FUNCTION:  # aligned because it computes the same, except for constants in float32
            if bound < (deviation := apart_but_hidden(*layer.output)) <= FLOAT32:
                constants.append(layer)
                bound = max(bound, GROWTH * deviation)
            continue
        given = 0.0 if layer.inputs is None else apart(*layer.inputs)
        deviation = apart(*layer.output)
        if max(given, deviation) <= bound:
            continue
        is_between = given > bound or layer.source.kind == OUTPUTS
        if max(given, deviation) <= ROUNDED.get(layer.family, FLOAT32) and not _explain(
            case, number, layer, is_between
        ):
            constants.append(layer)
            bound = max(bound, GROWTH * max(given, deviation))
            continue
        return (_between if is_between else _inside)(case, number, layer, off(layer)), constants, bound
    return None, constants, bound


def _inside(case: PortCase, number: int, layer: Aligned, deviation: float) -> PortVerdict:
    cause = _explain(case, number, layer, False)
    seen = differ("outputs", layer.output)
    return different("forward", layer, deviation, seen, cause)


def _between(case: PortCase, number: int, layer: Aligned, deviation: float) -> PortVerdict:
    """Returns the verdict that the first difference is in what stands before a layer."""
    layers = [each for each in case.layers[:number] if each.family != FUNCTION]
    cause, before = _explain(case, number, layer, True), layers[-1] if layers else None
    both = layer.output if layer.inputs is None else layer.inputs
    is_last = layer.source.kind == OUTPUTS
    what = differ("the outputs of the model" if is_last else "the input", both)
    named = before if is_last and before is not None else layer
    where = f"between {before.names} and {layer.names}" if before is not None else f"before {layer.names}"
    where = f"after {named.names}" if is_last else where
    return different("forward", named, deviation, what, cause, where)


def _explain(case: PortCase, number: int, layer: Aligned, is_between: bool) -> str:
    if not is_between and layer.family in WAYS:
        return _explain_inside(case, number, layer)
    target = layer.output if layer.inputs is None or not is_between else layer.inputs
    if lacking := _lacking(case, layer):
        return lacking
    if moved := _explain_order(case, number, layer):
        return moved
    found = identify_between(case.layers[:number], target, _find_gap(case, number, layer), _held(case, layer))
    if found is None or isinstance(found, str):
        turned = turn(target)
        return turned.said if turned is not None else found or ""
    if layer.source.kind == OUTPUTS and "softmax" in (each.get("activation") for each in found):
        where = "{b}" if found[1]["activation"] == "softmax" else "{a}"
        return f"{where} returns probabilities where the loss wants logits"
    return _explain_place(case, layer, found) or say(*found)


def _held(case: PortCase, layer: Aligned) -> dict[str, np.ndarray]:
    """Returns the parameters that may take part in what stands before a layer: its own, and those that belong to no layer."""
    raw = [pair for pair in case.matching.pairs if pair.layers[0].kind == pair.layers[1].kind == "Parameter"]
    own = {f"its {role.removesuffix('/value')}": value for role, value in layer.params[1].items()}
    for pair in case.matching.pairs:  # the rows that torch's EmbeddingBag pools are not recorded in any call
        for call in (each for each in case.source.calls if each.kind == "EmbeddingBag" == pair.layers[0].kind):
            if call.name == pair.layers[0].call and call.inputs[0].ndim == 2:
                ids = few(call.inputs[0]).astype(np.int64)
                own[f"the rows of `{call.name}`"] = case.weights[1][pair.target[0].neutral][ids]
    return own | {f"`{pair.source[0].native}`": case.weights[1][pair.target[0].neutral] for pair in raw}


def _explain_inside(case: PortCase, number: int, layer: Aligned) -> str:
    """Says why a layer's outputs differ, from its inputs, or from the array that one side pads before the layer."""
    inputs = layer.inputs or _common_inputs(case.layers[:number], layer)
    found = identify_both(dataclasses.replace(layer, inputs=inputs), WAYS[layer.family])
    lacking = _lacking(case, layer)
    if found is None:
        return lacking
    beside: list[Settings] = [{name: each[name] for name in each if name != "bias" or not lacking} for each in found]
    return "; ".join(filter(None, (lacking, say(beside[0], beside[1]))))


def _lacking(case: PortCase, layer: Aligned) -> str:
    """Says which parameter only one side of a layer has; "" if there is none."""
    sides = (("{a}", "{b}", case.matching.only_source), ("{b}", "{a}", case.matching.only_target))
    for has, lacks, only in sides:
        for held, one, other in only:
            if one.call == layer.source.name or other.call == layer.target.name:  # one layer may do the work of several
                return f"{lacks} has no {_role(held.native, one, other)}, {has} has `{held.native}`"
    return ""


def _role(native: str, *layers: ParameterLayer) -> str:
    return next((role for each in layers for role, held in each.params.items() if held.native == native), "parameter")


# --- what stands between two layers, and layers in another order ------------------------------------------------------


def _find_gap(case: PortCase, number: int, layer: Aligned) -> Gap:
    """Returns the calls on each side before a layer that have no counterpart on the other side.

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
        # Start after the preceding layer; functions that agree may come after ones that do not.
        start = max((at + 1 for call in layers if (at := place.get(id(call), end)) < end), default=0)
        taken, between = set(map(id, aligned)), trace.calls[start:end]
        sides.append([call for call in between if id(call) not in taken and not (moves(call) and not takes_part(call))])
    return sides[0], sides[1]


def _common_inputs(before: Sequence[Aligned], layer: Aligned) -> Both | None:
    """Returns the arrays from which both sides of a layer start, if one side pads its input first; None if there are none.

    Args:
        before: The preceding layers.
        layer: The layer, whose inputs differ in shape.
    """
    if not (layer.source.inputs and layer.target.inputs):
        return None
    axes = find_axes(layer.family, layer.source, layer.target)
    one, other = turned(layer.source.inputs[0], axes), layer.target.inputs[0]
    for row in reversed(before):
        if apart(row.output[0], one) == 0 or apart(row.output[1], other) == 0:
            return row.output
    return None


def _explain_order(case: PortCase, number: int, layer: Aligned) -> str:
    """Says which layers the two sides run in a different order, if that is why a layer's inputs differ; "" otherwise.

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


def _explain_place(case: PortCase, layer: Aligned, found: tuple[Settings, Settings]) -> str:
    """Says that one side applies an activation before a layer and the other after it; "" if the other leaves it out.

    Args:
        case: Both implementations.
        layer: The layer.
        found: The settings of what stands before it on each side.
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

"""Goes through the layers in the order of execution, to the first that differs, and says why."""

import dataclasses

import numpy as np

from samestep.common.porting.alignment import OUTPUTS, Aligned
from samestep.common.porting.array_layouts import FLOAT32, apart, apart_but_hidden
from samestep.common.porting.case import GROWTH, LAYER_BOUND, PortCase, PortVerdict, differ, different, off
from samestep.common.porting.functions import FUNCTION
from samestep.common.porting.gaps import common_inputs, explain_order, explain_place, find_gap
from samestep.common.porting.ways.between import identify_between
from samestep.common.porting.ways.identify import FLOAT32 as ROUNDED
from samestep.common.porting.ways.identify import Settings, identify_both
from samestep.common.porting.ways.layers import WAYS
from samestep.common.porting.ways.one_step import few
from samestep.common.porting.ways.turns import turn
from samestep.common.porting.words import say
from samestep.common.workload.models.layer import ParameterLayer


def go_forward(case: PortCase) -> tuple[PortVerdict | None, list[Aligned], float]:
    """Goes through the layers; returns the first difference, the layers with constants, and the bound that is left.

    What is off by no more than a constant in float32 explains, and what no cause explains, is such a constant. What comes
    after it may be off by a little more.
    """
    constants: list[Aligned] = []
    bound = LAYER_BOUND
    for number, layer in enumerate(case.layers):
        if layer.family == FUNCTION:  # aligned since it computes the same, but for a constant in float32
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
    """The first difference is in what stands before a layer."""
    layers = [each for each in case.layers[:number] if each.family != FUNCTION]
    cause, before = _explain(case, number, layer, True), layers[-1] if layers else None
    both = layer.output if layer.inputs is None else layer.inputs
    is_last = layer.source.kind == OUTPUTS
    what = differ("the outputs of the model" if is_last else "what goes in", both)
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
    if moved := explain_order(case, number, layer):
        return moved
    found = identify_between(case.layers[:number], target, find_gap(case, number, layer), _held(case, layer))
    if found is None or isinstance(found, str):
        turned = turn(target)
        return turned.said if turned is not None else found or ""
    if layer.source.kind == OUTPUTS and "softmax" in (each.get("activation") for each in found):
        where = "{b}" if found[1]["activation"] == "softmax" else "{a}"
        return f"{where} returns probabilities where the loss wants logits"
    return explain_place(case, layer, found) or say(*found)


def _held(case: PortCase, layer: Aligned) -> dict[str, np.ndarray]:
    """Returns the parameters that may take part in what stands before a layer: its own, and those that belong to no layer."""
    raw = [pair for pair in case.matching.pairs if pair.layers[0].kind == pair.layers[1].kind == "Parameter"]
    own = {f"its {role.removesuffix('/value')}": value for role, value in layer.params[1].items()}
    for pair in case.matching.pairs:  # what a bag of torch pools is at hand in no call of it
        for call in (each for each in case.source.calls if each.kind == "EmbeddingBag" == pair.layers[0].kind):
            if call.name == pair.layers[0].call and call.inputs[0].ndim == 2:
                ids = few(call.inputs[0]).astype(np.int64)
                own[f"the rows of `{call.name}`"] = case.weights[1][pair.target[0].neutral][ids]
    return own | {f"`{pair.source[0].native}`": case.weights[1][pair.target[0].neutral] for pair in raw}


def _explain_inside(case: PortCase, number: int, layer: Aligned) -> str:
    """Why a layer computes something else, from its inputs, or from what was padded to be its input on one side."""
    inputs = layer.inputs or common_inputs(case.layers[:number], layer)
    found = identify_both(dataclasses.replace(layer, inputs=inputs), WAYS[layer.family])
    lacking = _lacking(case, layer)
    if found is None:
        return lacking
    beside: list[Settings] = [{name: each[name] for name in each if name != "bias" or not lacking} for each in found]
    return "; ".join(filter(None, (lacking, say(beside[0], beside[1]))))


def _lacking(case: PortCase, layer: Aligned) -> str:
    """Returns a parameter that only one side of a layer has."""
    sides = (("{a}", "{b}", case.matching.only_source), ("{b}", "{a}", case.matching.only_target))
    for has, lacks, only in sides:
        for held, one, other in only:
            if one.call == layer.source.name or other.call == layer.target.name:  # one may do what several do
                return f"{lacks} has no {_role(held.native, one, other)}, {has} has `{held.native}`"
    return ""


def _role(native: str, *layers: ParameterLayer) -> str:
    return next((role for each in layers for role, held in each.params.items() if held.native == native), "parameter")

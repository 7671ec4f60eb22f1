"""Goes through the layers in the order of execution, to the first that differs, and says why."""

from samestep.common.porting.alignment import OUTPUTS, Aligned
from samestep.common.porting.array_layouts import apart
from samestep.common.porting.between import identify_between
from samestep.common.porting.case import FLOAT32, GROWTH, LAYER_BOUND, PortCase, PortVerdict, differ, different, off
from samestep.common.porting.identify import identify_both
from samestep.common.porting.ways import WAYS
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
        given = 0.0 if layer.inputs is None else apart(*layer.inputs)
        deviation = apart(*layer.output)
        if max(given, deviation) <= bound:
            continue
        is_between = given > bound or layer.source.kind == OUTPUTS
        if max(given, deviation) <= FLOAT32 and not _explain(case, number, layer, is_between):
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
    cause, before = _explain(case, number, layer, True), case.layers[number - 1] if number else None
    both = layer.output if layer.inputs is None else layer.inputs
    last = layer.source.kind == OUTPUTS
    what = differ("the outputs of the model" if last else "what goes in", both)
    if before is None or layer.source.kind == OUTPUTS:
        names = before.names if before is not None and last else layer.names
        where = f"after {names}" if last else f"before {names}"
    else:
        where = f"between {before.names} and {layer.names}"
    named = before if last and before is not None else layer
    return different("forward", named, deviation, what, cause, where)


def _explain(case: PortCase, number: int, layer: Aligned, is_between: bool) -> str:
    lacking = _lacking(case, layer)
    if lacking:
        return lacking
    if is_between:
        target = layer.output if layer.inputs is None else layer.inputs
        found = identify_between(case.layers[:number], target)
        if (
            found is not None
            and layer.source.kind == OUTPUTS
            and "softmax" in (each.get("activation") for each in found)
        ):
            where = "{b}" if found[1]["activation"] == "softmax" else "{a}"
            return f"{where} returns probabilities where the loss wants logits"
    else:
        found = identify_both(layer, WAYS[layer.family]) if layer.family in WAYS else None
    return say(*found) if found is not None else ""


def _lacking(case: PortCase, layer: Aligned) -> str:
    """Returns a parameter that only one side of a layer has."""
    sides = (("{a}", "{b}", case.matching.only_source), ("{b}", "{a}", case.matching.only_target))
    for has, lacks, only in sides:
        for held, one, other in only:
            if (one.call, other.call) == (layer.source.name, layer.target.name):
                return f"{lacks} has no {_role(held.native, one, other)}, {has} has `{held.native}`"
    return ""


def _role(native: str, *layers: ParameterLayer) -> str:
    return next((role for each in layers for role, held in each.params.items() if held.native == native), "parameter")

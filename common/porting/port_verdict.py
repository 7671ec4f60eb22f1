"""Decides whether two implementations are the same model, and if not, which layer differs first and why."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from samestep.common.errors import count
from samestep.common.flags import FieldValues
from samestep.common.porting.array_layouts import apart
from samestep.common.porting.case import (
    CONSTANTS,
    CURVE_BOUND,
    DIFFERENT,
    LAYER_BOUND,
    SAME,
    PortCase,
    PortVerdict,
    differ,
    different,
    first_difference,
    off,
)
from samestep.common.porting.ceilings import notes_on_ceilings
from samestep.common.porting.forward import go_forward
from samestep.common.porting.functions import FUNCTION
from samestep.common.porting.matching.pairing import Pair
from samestep.common.porting.training import update_differences
from samestep.common.porting.training.configurations import (
    added_to_norms,
    compare_optimizers,
    compare_rates,
    compare_stilled,
)
from samestep.common.porting.training.loss_differences import explain_loss, is_explained
from samestep.common.porting.training.running import explain_buffers, notes
from samestep.common.porting.training.stilled_places import compare_places, notes_on_places
from samestep.common.porting.words import name_sides, relative, spell_deviation


def judge_port(case: PortCase) -> PortVerdict:
    """Finds the first difference, in this order: forward, dropout, loss, evaluation, backward, buffers, update, curve.

    Args:
        case: Both implementations.
    """
    with np.errstate(all="ignore"):  # NaN and infinity count as deviations
        found = _judge(case)
    said: FieldValues = {name: name_sides(getattr(found, name), case.frameworks) for name in ("sentence", "cause")}
    return dataclasses.replace(found, **said, notes=tuple(name_sides(note, case.frameworks) for note in found.notes))


def _judge(case: PortCase) -> PortVerdict:
    found, constants, bound = go_forward(case)
    for check in (compare_stilled, compare_places, _loss, _evaluation, _backward, _buffers, _update, _curve):
        found = found or check(case, bound)
    found_notes = (*notes(case), *notes_on_ceilings(case))
    if found is not None:
        return dataclasses.replace(found, notes=found_notes)
    found_notes += notes_on_places(case)
    steps = _say_steps(case, bool(constants)) if case.source.losses else ""
    same = "the same model" + (f" except for {', '.join(case.accepted)}, as accepted" if case.accepted else "")
    if not constants:
        return PortVerdict(
            kind=SAME, sentence=f"{same}: every layer within {LAYER_BOUND:.0e}{steps}", notes=found_notes
        )
    called = [layer.source.name if layer.family == FUNCTION else layer.target.name for layer in constants]
    names = ", ".join(dict.fromkeys(f"`{name}`" for name in called))
    deviation = max(off(layer) for layer in constants)
    return PortVerdict(
        kind=CONSTANTS,
        sentence=f"{same} up to float32 constants in {names} ({deviation:.0e}){steps}",
        source=constants[0].source.name,
        target=constants[0].target.name,
        deviation=deviation,
        notes=found_notes,
    )


def reach(case: PortCase, verdict: PortVerdict) -> int:
    """Returns how many layers agree before the first difference.

    Args:
        case: Both implementations.
        verdict: The verdict on them.
    """
    names = [layer.source.name for layer in case.layers]
    is_forward = verdict.kind == DIFFERENT and verdict.phase == "forward"
    return names.index(verdict.source) if is_forward and verdict.source in names else len(names)


def _say_steps(case: PortCase, has_constants: bool) -> str:
    found = [relative(one, other) for one, other in _finite_losses(case)]
    worst = max(CURVE_BOUND, *found)
    why = "" if has_constants or worst == CURVE_BOUND else ", rounding amplified"
    return f", {count(len(found), 'step')} within {worst:.0e}{why}"


# --- after the forward pass -------------------------------------------------------------------------------------------


def _loss(case: PortCase, bound: float) -> PortVerdict | None:
    one, other, added = case.source.loss, case.target.loss, case.target.added
    deviation, bound = relative(one, other), max(bound, LAYER_BOUND)
    if deviation <= (LAYER_BOUND if is_explained(one, other, added) else bound):
        return None
    cause = explain_loss(
        (one, other), (case.source.each, case.target.each), case.source.outputs, case.source.targets, added, bound
    )
    seen = f"the loss of equal outputs is {one:.9g} in {{a}} and {other:.9g} in {{b}}"
    return first_difference("loss", "", seen, cause, deviation=deviation)


def _evaluation(case: PortCase, bound: float) -> PortVerdict | None:
    for layer in case.layers:
        if layer.evaluated is not None and (deviation := apart(*layer.evaluated)) > bound:
            seen = f"in evaluation {differ('outputs', layer.evaluated)}, in training they agree"
            return different("evaluation", layer, deviation, seen, "")
    return None


def _backward(case: PortCase, bound: float) -> PortVerdict | None:
    """Goes back from the last layer to the first parameter whose gradient differs; the verdict may name the layer above it."""
    largest = max(float(np.abs(g).max(initial=0.0)) for g in case.source.gradients.values())
    flows = [layer for layer in case.layers if layer.gradient is not None]
    scale = max((float(np.abs(layer.gradient[0]).max()) for layer in flows), default=0.0)  # type: ignore[index]
    apart_flows = [layer for layer in flows if update_differences.deviation(layer.gradient, scale) > bound]  # type: ignore[arg-type]
    for pair in reversed(case.matching.pairs):
        both = update_differences.gradients(pair, case)
        deviation = max((update_differences.deviation(each, largest) for each in both), default=0.0)
        if deviation <= bound:
            continue
        cause = _explain_frozen(pair, case) or update_differences.explain_gradient(pair, both)
        if apart_flows and not cause:
            *_, last = apart_flows
            seen = f"outputs agree, {differ('their gradients', last.gradient)}"  # type: ignore[arg-type]
            return different("backward", last, update_differences.deviation(last.gradient, scale), seen, "")  # type: ignore[arg-type]
        return _of_pair("backward", pair, deviation, f"its gradients differ by {spell_deviation(deviation)}", cause)
    return None


def _explain_frozen(pair: Pair, case: PortCase) -> str:
    """Says which side freezes a parameter that the other trains; "" if both agree."""
    ours = {held.neutral for held in pair.source} <= {*case.source.frozen}
    theirs = {held.neutral for held in pair.target} <= {*case.target.frozen}
    frozen, trained = ("{a}", "{b}") if ours else ("{b}", "{a}")
    return "" if ours == theirs else f"it is frozen in {frozen}, and trained in {trained}"


def _of_pair(phase: str, pair: Pair, deviation: float, seen: str, cause: str) -> PortVerdict:
    where = f"{{a:key}} `{pair.source[0].native}`, {{b:key}} `{pair.target[0].native}`"
    one, other = pair.layers
    return first_difference(phase, where, seen, cause, (one.name, other.name), deviation)


def _buffers(case: PortCase, bound: float) -> PortVerdict | None:
    for layer in case.layers:
        if cause := explain_buffers(layer, case):
            return different("buffers", layer, 1.0, "the running statistics differ after one step", cause)
    return None


def _update(case: PortCase, bound: float) -> PortVerdict | None:
    found = update_differences.compare_updates(case, bound, compare_optimizers(case))
    if found is None:
        return None
    pair, deviation, cause = found
    is_off = deviation > max(bound, update_differences.CONSTANT)
    seen = (
        f"the first step differs by {spell_deviation(deviation)}"
        if is_off
        else "so does the first step, later ones do not"
    )
    return _of_pair("update", pair, deviation, f"its gradients agree, {seen}", cause)


def _finite_losses(case: PortCase) -> Iterator[tuple[float, float]]:
    """Yields the losses of both curves up to the step at which neither is finite; after it, nothing can be compared."""
    for one, other in zip(case.source.losses, case.target.losses, strict=True):
        if not (math.isfinite(one) or math.isfinite(other)):
            return
        yield one, other


def _curve(case: PortCase, bound: float) -> PortVerdict | None:
    """Returns the verdict on the first loss whose deviation amplified rounding does not explain; None if there is none."""
    allowed = case.allowed_deviations()
    for number, (one, other) in enumerate(_finite_losses(case)):
        if not (deviation := relative(one, other)) <= allowed[number]:
            said = f"the first step agrees, the loss of step {number} is {one:.9g} in {{a}} and {other:.9g} in {{b}}"
            cause = compare_rates(case) or (update_differences.ADDED_TO_NORM if added_to_norms(case) else "")
            return first_difference("curve", "", said, cause, deviation=deviation)
    return None

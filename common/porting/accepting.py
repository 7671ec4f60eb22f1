"""Compensates for a difference that the user accepts: torch is made to do what TensorFlow does, so later differences show."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from samestep.common.porting.alignment import OUTPUTS, Aligned
from samestep.common.porting.array_layouts import is_same, layouts
from samestep.common.porting.case import PortCase, PortVerdict
from samestep.common.porting.changes import CHANGES
from samestep.common.porting.functions import FUNCTION
from samestep.common.porting.model_trace import Amendments, Settings
from samestep.common.porting.training.configurations import differing_settings
from samestep.common.porting.training.running import moved_shares
from samestep.common.porting.turning import POOLS, Turned, pool
from samestep.common.porting.ways.formulas import LEAKY, NumberedName
from samestep.common.porting.ways.identify import identify_both
from samestep.common.porting.ways.layers import WAYS
from samestep.common.porting.ways.turns import turn

Remedies = Mapping[str, Amendments]
"""The name of a difference that may be accepted -> the amendments that compensate for it."""
_GELUS = {"exact gelu": "none", "gelu by tanh": "tanh"}
_KERAS_ADAM = re.compile("Adam.?|Nadam")
"""Class names of Keras' Adam optimizers. samestep's own have lowercase names and add epsilon where torch does."""


def compensate(case: PortCase, verdict: PortVerdict, accepted: Collection[str]) -> Remedies:
    """Returns the amendments that compensate for the accepted parts of a first difference.

    Args:
        case: Both implementations.
        verdict: The verdict that names the first difference.
        accepted: The names of the accepted differences.
    """
    if not accepted:
        return {}
    with np.errstate(all="ignore"):  # a fitted formula may give NaN elsewhere
        remedies = _BY_PHASE.get(verdict.phase, _left_out)(case, verdict)
    return {name: remedy for name, remedy in remedies.items() if name in accepted}


def _of_forward(case: PortCase, verdict: PortVerdict) -> Remedies:
    """Returns the amendments for layers whose settings differ, and for the first layer that is given something else."""
    found: dict[str, Amendments] = {}
    for layer in case.layers:
        for name, settings in _of_settings(layer).items():
            amended = Amendments(modules={layer.source.name: settings})
            found[name] = found.get(name, Amendments()) | amended
    return {**found, **_between(case)}


def _of_settings(layer: Aligned) -> dict[str, Settings]:
    both = identify_both(layer, WAYS[layer.family]) if layer.family in WAYS and not is_same(*layer.output) else None
    if both is None:
        return {}
    one, other = both
    found: dict[str, Settings] = {}
    if one.get("epsilon") != other.get("epsilon"):
        found["epsilon"] = {"eps": float(str(other["epsilon"]))}
    ours, theirs = (each.get("activation") for each in both)
    if ours != theirs and {ours, theirs} <= {*_GELUS} and layer.source.kind == "GELU":
        found["gelu"] = {"approximate": _GELUS[str(theirs)]}
    is_leaky = ours != theirs and layer.source.kind == "LeakyReLU"
    if is_leaky and isinstance(theirs, NumberedName) and theirs.kind == LEAKY:
        found["slope"] = {"negative_slope": theirs.number}
    return found


def _between(case: PortCase) -> Remedies:
    """Returns the amendment for the first layer whose input differs from that of its counterpart."""
    for number, layer in enumerate(case.layers):
        is_last = layer.source.kind == OUTPUTS
        both = layer.output if is_last else layer.inputs
        if layer.family == FUNCTION or both is None or is_same(*both):
            continue
        given = layer.source.output if is_last else layer.source.inputs[0]
        path, axes = "" if is_last else layer.source.name, _layout(given, both[0])
        turned = turn(both)
        if turned is not None and turned.steps and axes is not None:
            return {turned.name: Amendments(turned={path: Turned(axes, turned.steps)})}
        pooled = _pooled(case.layers[:number], both[1])
        return {} if pooled is None else {"pooling": Amendments(turned={path: pooled})}
    return {}


def _pooled(before: Sequence[Aligned], target: np.ndarray) -> Turned | None:
    """Returns how to pool the output of an earlier torch layer to get the target; None if no pooling gives it."""
    for layer in reversed(before):
        axes = _layout(layer.source.output, layer.output[0])
        if layer.family == FUNCTION or layer.source.name.endswith("()") or axes is None or len(axes) < 3:
            continue
        for how in POOLS:
            if is_same(pool(layer.output[1], how), target):
                return Turned(axes, (("pool", how),), of=layer.source.name)
    return None


def _layout(given: np.ndarray, aligned: np.ndarray) -> tuple[int, ...] | None:
    """Returns the permutation of axes that turned torch's array into the aligned one; None if there is none."""
    return next((axes for axes in layouts(given.ndim) if np.array_equal(given.transpose(axes), aligned)), None)


def _left_out(case: PortCase, verdict: PortVerdict) -> Remedies:
    """Returns no amendments under the name of the phase: a difference that is accepted by that name is not compared."""
    return {verdict.phase: Amendments()}


def _of_loss(case: PortCase, verdict: PortVerdict) -> Remedies:
    return {"added_loss": Amendments(is_bare=True)} if case.target.added else {}


def _of_gradients(case: PortCase, verdict: PortVerdict) -> Remedies:
    named = [call.settings.get("padding_idx") for call in case.source.calls if call.name == verdict.source]
    if named and named[0] is not None:
        return {"padding_idx": Amendments(modules={verdict.source: {"padding_idx": None}})}
    return {}


def _of_statistics(case: PortCase, verdict: PortVerdict) -> Remedies:
    found: dict[str, Settings] = {}
    for layer in case.layers:
        for _, theirs in moved_shares(layer, case):
            found[layer.source.name] = {"momentum": theirs}
    return {"momentum": Amendments(modules=found)} if found else {}


def _of_updates(case: PortCase, verdict: PortVerdict) -> Remedies:
    found: dict[str, Amendments] = {}
    for pair in case.matching.parameters:
        if CHANGES[pair.change].is_summed and len(pair.source) == 2:
            second = Amendments(frozen=(pair.source[1].native,))
            found["double_bias"] = found.get("double_bias", Amendments()) | second
        for name, value in differing_settings(*case.updates(pair)).items():
            one = Amendments(optimizer={held.neutral: {name: value} for held in pair.source})
            found[name] = found.get(name, Amendments()) | one
    kinds = {str(each["kind"]) for each in case.target.optimizer.values()}
    if kinds and all(map(_KERAS_ADAM.fullmatch, kinds)):
        found["epsilon"] = found.get("epsilon", Amendments()) | Amendments(is_adding_early=True)
    return found


_BY_PHASE: Mapping[str, Callable[[PortCase, PortVerdict], Remedies]] = {
    "forward": _of_forward,
    "loss": _of_loss,
    "backward": _of_gradients,
    "buffers": _of_statistics,
    "update": _of_updates,
    "curve": _of_updates,
}

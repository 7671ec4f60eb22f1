"""Compares how two implementations are configured: what was switched off in their layers, and the settings of their updates.

Neither necessarily shows in the numbers: random draws are switched off for the comparison, and Adam's first step does
not depend on its decay rates.
"""

import math
from collections.abc import Sequence

import numpy as np

from samestep.common.porting.case import Hyper, PortCase, PortVerdict, first_difference
from samestep.common.porting.matching.pairing import Pair
from samestep.common.porting.model_trace import CLIP_EPSILON, Setting
from samestep.common.workload.models.layer import Stilled

_RATE = 1e-6
"""How far two hyper-parameters may be apart, relative: Keras keeps some in float32."""
_KINDS = ("sgd", "adam", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "lion", "adafactor")
_OTHER_NAMES = {
    **{"lr": "learning rate", "learning_rate": "learning rate", "eps": "epsilon", "alpha": "rho"},
    **{"beta1": "beta_1", "beta2": "beta_2"},
}
"""The name of an optimizer setting in torch, Keras or samestep -> its name in messages, where they differ."""
_DECIDING = (
    *("learning rate", "epsilon", "rho", "beta_1", "beta_2", "momentum", "nesterov", "dampening", "amsgrad"),
    *("centered", "maximize", "lr_decay", "use_ema", "loss_scale_factor", "clipnorm", "clipvalue", "global_clipnorm"),
    *("initial_accumulator_value", "norm_type", CLIP_EPSILON),
)
"""The settings that decide an update, as messages call them."""


# --- what is switched off ---------------------------------------------------------------------------------------------


def compare_stilled(case: PortCase, bound: float) -> PortVerdict | None:
    """Finds the first layer in which something else was switched off than in its counterpart.

    Args:
        case: Both implementations.
        bound: Not used; shares are compared exactly.
    """
    ours, theirs = (
        {name: each for name, each in trace.stilled.items() if each.share and each.feature not in case.accepted}
        for trace in (case.source, case.target)
    )
    for layer in case.layers:
        names = layer.source.name, layer.target.name
        if names[0] in ours and names[1] in theirs and layer.family == ours[names[0]].feature:
            one, other = ours.pop(names[0]), theirs.pop(names[1])
            if one != other:
                return _differing_stilled(names, one, other)
    return _compare_left(list(ours.items()), list(theirs.items()))


def _compare_left(ours: list[tuple[str, Stilled]], theirs: list[tuple[str, Stilled]]) -> PortVerdict | None:
    """Compares what was not aligned: an attention layer may itself do what a separate layer does on the other side."""
    for name, stilled in list(ours):
        if (found := next((each for each in theirs if each[1] == stilled), None)) is not None:
            ours.remove((name, stilled))
            theirs.remove(found)
    if not ours and not theirs:
        return None
    (one_name, one), (other_name, other) = (each[0] if each else ("", None) for each in (ours, theirs))
    return _differing_stilled((one_name, other_name), one, other)


def _differing_stilled(names: tuple[str, str], one: Stilled | None, other: Stilled | None) -> PortVerdict:
    said = ["nothing there" if each is None else f"{each.share:g} of the {each.what}" for each in (one, other)]
    is_kept = one and other and one.what == other.what and math.isclose(one.share + other.share, 1)
    kept = ", which is what {a} keeps" if is_kept else ""
    where = ", ".join(f"{side} `{name}`" for side, name in zip(("{a:key}", "{b:key}"), names, strict=True) if name)
    cause, given = f"{{a}} drops {said[0]}, {{b}} {said[1]}{kept}", one or other
    feature = given.feature if given else ""
    seen = f"{feature} was switched off for the comparison, and it differs"
    return first_difference(feature, where, seen, cause, names)


# --- hyper-parameters -------------------------------------------------------------------------------------------------


def compare_optimizers(case: PortCase) -> dict[int, str]:
    """Returns the hyper-parameters in which two optimizers differ, in words, by the id of the pair of parameters."""
    found: dict[int, list[tuple[str, str]]] = {}
    pairs = case.matching.parameters
    for pair in pairs:
        one, other = case.updates(pair)
        if one and other and (said := _differing(one, other)):
            found[id(pair)] = said
    on = " on biases" if _are_biases([pair for pair in pairs if id(pair) in found]) and len(found) < len(pairs) else ""
    return {key: "; ".join(f"{name}{on}: {words}" for name, words in said) for key, said in found.items()}


def compare_rates(case: PortCase) -> str:
    """Says at which step the learning rates first differ, or how momentum follows equal rates differently; "" otherwise.

    Args:
        case: Both implementations.
    """
    rates = case.source.rates, case.target.rates
    for number, (one, other) in enumerate(zip(*rates, strict=False), 1):
        if not math.isclose(one, other, rel_tol=_RATE):
            return f"the learning rate of step {number} is {one:.6g} in {{a}}, {other:.6g} in {{b}}"
    settings = [*case.source.optimizer.values(), *case.target.optimizer.values()]
    is_same = len(set(rates[0])) < 2
    if is_same or not all(str(each.get("kind")).lower() == "sgd" and each.get("momentum") for each in settings):
        return ""
    return (
        "the rates are the same, and momentum follows them differently: {a} multiplies all of the velocity by the "
        "rate of the "
        "step, {b} keeps each gradient times the rate that it had"
    )


def added_to_norms(case: PortCase) -> dict[int, float]:
    """Returns what torch adds to a clipping norm, relative to that norm, by the id of the pair whose gradient both sides clip.

    Args:
        case: Both implementations.
    """
    squares = {name: float(np.square(gradient).sum()) for name, gradient in case.source.gradients.items()}
    found: dict[int, float] = {}
    for pair in case.matching.parameters:
        ours, theirs = case.updates(pair)
        own = squares[pair.source[0].neutral]
        for setting, clipped in (("global_clipnorm", sum(squares.values())), ("clipnorm", own)):
            if (added := ours.get(CLIP_EPSILON)) and clipped and ours.get(setting) and theirs.get(setting):
                found[id(pair)] = float(str(added)) / math.sqrt(clipped)
    return found


def _are_biases(pairs: Sequence[Pair]) -> bool:
    return {pair.source[0].neutral.rpartition("/")[2] for pair in pairs} == {"bias"}


def _differing(one: Hyper, other: Hyper) -> list[tuple[str, str]]:
    """Returns the name of each setting that differs, and what it is on both sides."""
    kinds = [str(each["kind"]) for each in (one, other)]
    known = [kind.lower().removesuffix("w") for kind in kinds]
    if not set(known) <= {*_KINDS}:
        return []
    if known[0] != known[1]:
        return [("the optimizer", f"{kinds[0]} in {{a}}, {kinds[1]} in {{b}}")]
    ours, theirs = _neutral(one), _neutral(other)
    # Torch always has CLIP_EPSILON, and Keras never does.
    names = [name for name in dict.fromkeys([*ours, *theirs]) if name != CLIP_EPSILON]
    differing = [name for name in names if not _are_same(ours.get(name), theirs.get(name))]
    both = ((name, ours.get(name), theirs.get(name)) for name in differing)
    return [(name, f"{_spell(one, other)} in {{a}}, {_spell(other, one)} in {{b}}") for name, one, other in both]


def differing_settings(one: Hyper, other: Hyper) -> dict[str, Setting]:
    """Returns the settings that would make one optimizer do what the other does, by the names under which they are accepted.

    Args:
        one: The settings of the optimizer to change.
        other: The settings of the optimizer to imitate.
    """
    ours, theirs = _neutral(one), _neutral(other)
    found: dict[str, Setting] = {}
    for name in {**ours, **theirs}:
        value = theirs.get(name, 0.0 if isinstance(ours.get(name), float) else False)
        accepted = name.replace(" in the gradient", "").replace(" ", "_")
        if not _are_same(ours.get(name), theirs.get(name)) and isinstance(value, bool | float | int):
            found[accepted] = theirs.get("weight decay", 0.0) if accepted == "weight_decay" else value  # type: ignore[assignment]
    return found


def _neutral(given: Hyper) -> dict[str, object]:
    """Returns hyper-parameters under their names in messages, without those that are switched off."""
    betas = given.get("betas")
    own = dict(given) | (dict(zip(("beta_1", "beta_2"), betas, strict=False)) if isinstance(betas, list) else {})
    named = {_OTHER_NAMES.get(name, name): value for name, value in own.items()}
    found = {name: value for name, value in named.items() if name in _DECIDING}
    if decay := own.get("weight_decay"):
        found["weight decay" if own.get("is_decoupled") else "weight decay in the gradient"] = decay
    return {name: value for name, value in found.items() if value}


def _are_same(one: object, other: object) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_RATE) or (math.isnan(one) and math.isnan(other))
    return one == other


def _spell(value: object, other: object) -> str:
    """Puts a hyper-parameter into words; if either side's is True, both are "on" or "off"."""
    if value is True or other is True:
        return "on" if value else "off"
    return "none" if value is None else f"{value:.6g}" if isinstance(value, int | float) else str(value)

"""How a cause is said: from the settings in which two implementations differ."""

import math
from collections.abc import Callable, Mapping, Sequence

from samestep.common.frameworks import conventions
from samestep.common.porting.ways.identify import Settings

Say = Callable[[object, object], str]
_GELUS = {"exact gelu": "exact GELU", "gelu by tanh": "GELU by tanh", "gelu by sigmoid": "GELU by sigmoid"}


_DEFAULTS: Settings = {"activation": "none", "factor": 1.0, "after": False, "constant": 0.0}
"""What a setting is in a way that does without it."""


def _missing(what: str, one: object, other: object) -> str:
    return f"{what} is left out in {'{b}' if one else '{a}'}"


def _activation(one: object, other: object) -> str:
    if one in _GELUS and other in _GELUS:
        return f"{{a}} computes {_GELUS[str(one)]}, {{b}} {_GELUS[str(other)]}"
    if "none" in (one, other):
        name, where = (one, "{b}") if other == "none" else (other, "{a}")
        return f"the activation ({name}) is left out in {where}"
    return f"{{a}}'s activation is {one}, {{b}}'s {other}"


def _padding(one: object, other: object) -> str:
    ours, theirs = (each[0] if isinstance(each, tuple) and len(set(each)) == 1 else each for each in (one, other))
    is_even = isinstance(theirs, tuple) and (len({*theirs}) == 1 or theirs[1] == 0)
    name = "{b}'s VALID" if theirs == (0, 0) else "{b}" if is_even else "{b}'s SAME"
    return f"{name} pads {theirs}, {{a}} pads {ours}"


def _ahead(one: object, other: object) -> str:
    said = {
        "None": "sees all",
        "0": "sees itself and what came before",
        "1": "sees one ahead",
        "-1": "does not see itself",
    }
    off = "causal mask off by one: " if isinstance(one, int) and isinstance(other, int) else "the masks differ: "
    return f"{off}in {{a}} a position {said.get(str(one), one)}, in {{b}} it {said.get(str(other), other)}"


def _terms(one: object, other: object) -> str:
    ours, theirs = _listed(one), _listed(other)
    if sorted(ours) == sorted(theirs):
        return f"the activation is that of {ours[0]} in {{a}}, of {theirs[0]} in {{b}}"
    for more, fewer, lacks in ((ours, theirs, "{b}"), (theirs, ours, "{a}")):
        if len(fewer) < len(more) and set(fewer) < set(more):
            return f"{lacks} does not add {' and '.join(each for each in more if each not in fewer)}"
    return f"{{a}} {does({'terms': one})}, {{b}} {does({'terms': other})}"


def _sum(one: object, other: object) -> str:
    for more, fewer, lacks in ((_listed(one), _listed(other), "{b}"), (_listed(other), _listed(one), "{a}")):
        if set(fewer) < set(more):
            return f"{lacks} does not add {' and '.join(each for each in more if each not in fewer)}"
    verb = "takes" if len(_listed(one)) == len(_listed(other)) == 1 else "adds"
    return f"{{a}} {verb} {_listing(one)}, {{b}} {_listing(other)}"


def _listing(values: object) -> str:
    return " and ".join(_number(each) for each in values) if isinstance(values, tuple) else _number(values)


def _listed(terms: object) -> list[str]:
    return [str(each) for each in terms] if isinstance(terms, tuple) else [str(terms)]


def _named(value: object) -> str:
    return "none" if value is None else str(value)


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def _rounding(one: object, other: object) -> str:
    return f"{{a}} rounds the number of windows {one}, {{b}} {other}"


_SAY: Mapping[str, Say] = {
    "statistics": lambda one, other: f"{{a}} normalises by {one}, {{b}} by {other}",
    "epsilon": lambda one, other: f"{{a}}'s epsilon is {_number(one)}, {{b}}'s {_number(other)}",
    "bias": lambda one, other: _missing("the bias", one, other),
    "kernel": lambda one, other: f"the square kernel is transposed in {'{b}' if other == 'transposed' else '{a}'}",
    "activation": _activation,
    "inner activation": lambda one, other: f"between its two parts, {_activation(one, other)}",
    "rounding": _rounding,
    "padding": _padding,
    "border": lambda one, other: f"{{a}} pads with {one}, {{b}} with {other}",
    "pools": lambda one, other: f"{{a}} pools by the {one}, {{b}} by the {other}",
    "window": lambda one, other: f"{{a}}'s window is {one}, {{b}}'s {other}",
    "stride": lambda one, other: f"{{a}}'s stride is {one}, {{b}}'s {other}",
    "dilation": lambda one, other: f"{{a}}'s dilation is {one}, {{b}}'s {other}",
    "heads": lambda one, other: f"{{a}} has {one} heads, {{b}} {other}",
    "scale": lambda one, other: f"{{a}} scales the attention by {one}, {{b}} by {other}",
    "ahead": _ahead,
    "hidden": lambda one, other: f"{{a}} hides {one}, {{b}} hides {other}",
    "gate": lambda one, other: f"{{a}}'s gates are computed by {one}, {{b}}'s by {other}",
    "state": lambda one, other: f"{{a}}'s state is computed by {one}, {{b}}'s by {other}",
    "direction": lambda one, other: f"{{a}} goes {one}, {{b}} {other}",
    "merge": lambda one, other: f"the two directions are {one} in {{a}}, {other} in {{b}}",
    "masked": lambda one, other: f"{'{b}' if other else '{a}'} leaves out the positions that are masked",
    "resizes": lambda one, other: f"{{a}} resizes {one}, {{b}} {other}",
    "pixels": lambda one, other: f"{{a}} resizes {one}, {{b}} {other}",
    "cut": lambda one, other: f"{{a}} cuts off {one} in front of a transposed convolution, {{b}} {other}",
    "kept": lambda one, other: (
        f"of a transposed convolution {{a}} keeps {_listing(one)} places, {{b}} {_listing(other)}"
    ),
    "roles": lambda one, other: f"{{a}} takes its projections as {one}, {{b}} as {other}",
    "gates": lambda one, other: f"{{a}}'s gates are in the order {one}, {{b}}'s in {other}",
    "reset": lambda one, other: f"{{a}}'s reset gate comes {one} the product with the state, {{b}}'s {other} it",
    "biases": lambda one, other: f"{{a}} adds {_which(one)}, {{b}} {_which(other)}",
    "order": lambda one, other: f"{{a}} flattens {one}, {{b}} {other}",
    "factor": lambda one, other: f"{{a}} multiplies by {_number(one)}, {{b}} by {_number(other)}",
    "terms": _terms,
    "softmax": lambda one, other: f"{{a}} takes the softmax over {one}, {{b}} over {other}",
    "back": lambda one, other: f"the heads are not transposed back in {'{b}' if one else '{a}'}",
    "over": lambda one, other: f"{{a}} pools over {one}, {{b}} over {other}",
    "sum": _sum,
    "constant": lambda one, other: f"{{a}} adds {_number(one)}, {{b}} {_number(other)}",
    "product": lambda one, other: f"{{a}} multiplies {_listing(one)}, {{b}} {_listing(other)}",
    "matrix product": lambda one, other: f"{{a}} multiplies {_listing(one)}, {{b}} {_listing(other)}",
    "joined": lambda one, other: f"{{a}} joins {_listing(one)}, {{b}} {_listing(other)}",
    "along": lambda one, other: f"{{a}} does so along {one}, {{b}} along {other}",
    "likeness": lambda one, other: f"{{a}} takes the {one}, {{b}} the {other}",
    "turns": lambda one, other: f"of what is turned by its position, {{a}} takes {one} as pairs, {{b}} {other}",
    "angle": lambda one, other: f"{{a}} turns a position by an angle of {_number(one)}, {{b}} of {_number(other)}",
    "hides": lambda one, other: f"{{a}} hides {one}, {{b}} hides {other}",
    "by": lambda one, other: f"{{a}} hides it by {one}, {{b}} by {other}",
    "pixels of channels": lambda one, other: f"of the channels that become pixels, in {{a}} {one}, in {{b}} {other}",
    "takes": lambda one, other: f"{{a}} takes {one}, {{b}} {other}",
    "axes": lambda one, other: f"{{a}} puts the axes in the order {_listing(one)}, {{b}} in {_listing(other)}",
    "into": lambda one, other: f"{{a}} leaves them {one}, {{b}} {other}",
    "after": lambda one, other: f"the activation comes after the sum in {'{a}' if one else '{b}'} only",
}
"""Setting -> what is said where the two sides differ in it, in this order."""
_NONE_IS_A_VALUE = ("ahead",)
_DETAILS = ("over", "along", "into", "by", "scale")
"""Settings that say nothing where only one side has them: the other side went another way."""
_IMPLIED = {"rounding": ("padding",), "statistics": ("epsilon",)}
"""Setting -> those that follow from it."""


_DOES: Mapping[str, Callable[[object], str]] = {
    "terms": lambda value: f"{'adds' if len(_listed(value)) > 1 else 'takes'} {' and '.join(_listed(value))}",
    "pools": lambda value: f"pools by the {value}",
    "order": lambda value: f"flattens {value}",
    "softmax": lambda value: f"takes the softmax over {value}",
    "sum": lambda value: f"adds {_listing(value)}" if len(_listed(value)) > 1 else f"takes {_listing(value)}",
    "product": lambda value: f"multiplies {_listing(value)}",
    "matrix product": lambda value: f"multiplies {_listing(value)} as matrices",
    "joined": lambda value: f"joins {_listing(value)}",
    "hides": lambda value: f"hides {value}",
    "takes": lambda value: f"takes {value}",
    "likeness": lambda value: f"takes the {value}",
    "turns": lambda value: f"turns {value} by their position",
    "pixels of channels": lambda value: f"makes pixels of channels, where {value}",
    "axes": lambda value: f"puts the axes in the order {_listing(value)}",
    "heads": lambda value: f"attends with {value} head{'' if value == 1 else 's'}",
}
"""The setting that tells one kind of way from another -> what is said where the two sides go different kinds of ways."""


def _which(biases: object) -> str:
    return {"both": "both biases", "the first": "one bias"}.get(str(biases), "no bias")


def does(settings: Settings) -> str:
    """Returns what one side does, in words, from the settings of a way that the other side does not go."""
    kind = next((kind for kind in _DOES if settings.get(kind) is not None), None)
    if kind == "terms" and (settings.get("activation", "none") != "none" or settings.get("factor", 1.0) != 1.0):
        times = f"{_number(settings['factor'])} times " if settings.get("factor", 1.0) != 1.0 else ""
        made = "" if settings.get("activation", "none") == "none" else f"{settings['activation']} of "
        return f"takes {times}{made}{' and '.join(_listed(settings['terms']))}"
    return "does something else" if kind is None else _DOES[kind](settings[kind])


def say(one: Settings, other: Settings) -> str:
    """Returns the cause, from the settings of torch and of TensorFlow.

    Args:
        one: Torch's.
        other: TensorFlow's.
    """
    if {*one} & {*_DOES} != {*other} & {*_DOES}:
        return f"{{a}} {does(one)}, {{b}} {does(other)}"
    ours, theirs = ({**_DEFAULTS, **each} for each in (one, other))
    differing = [name for name in _SAY if ours.get(name) != theirs.get(name)]
    implied = {each for name in differing for each in _IMPLIED.get(name, ())}
    return "; ".join(filter(None, (_say(name, ours, theirs) for name in differing if name not in implied)))


def _say(name: str, one: Settings, other: Settings) -> str:
    """Says a setting in which two sides differ; one that only one side has is said of that side."""
    for ours, theirs, who in ((one, other, "{a}"), (other, one, "{b}")):
        if name not in theirs:
            return "" if name in _DETAILS else f"only {who} has {name} {ours[name]}" if ours[name] is not None else ""
    if None in (one[name], other[name]) and name not in _NONE_IS_A_VALUE:
        return f"{{a}}'s {name} is {_named(one[name])}, {{b}}'s {_named(other[name])}"
    return _SAY[name](one[name], other[name])


def name_sides(text: str, frameworks: Sequence[str]) -> str:
    """Fills in what the two sides are called: every other function here writes `{a}` and `{b}`, or `{a:key}` and `{b:key}`.

    Args:
        text: A sentence.
        frameworks: The frameworks of the source and of the target.
    """
    for mark, framework in zip("ab", frameworks, strict=True):
        text = text.replace(f"{{{mark}}}", conventions(framework).name).replace(f"{{{mark}:key}}", framework)
    return text


def percent(ratio: float) -> str:
    """Returns a deviation as people say it: 12 %, 3.4e-06."""
    if not math.isfinite(ratio):
        return "not finite"
    if ratio >= 1:
        return f"{100 * ratio:.0f} %" if ratio < 10 else f"{ratio:.3g} times"
    return f"{100 * ratio:.2g} %" if ratio >= 1e-3 else f"{ratio:.1e}"


def relative(one: float, other: float) -> float:
    """Returns how far two numbers are apart, relative to the larger one; infinite where one of them is not finite.

    Args:
        one: A number.
        other: Another one.
    """
    if one == other and math.isfinite(one):
        return 0.0
    found = abs(one - other) / max(abs(one), abs(other), 1e-300)
    return found if math.isfinite(found) else math.inf

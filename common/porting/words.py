"""Puts a cause into words, from the settings in which two implementations differ."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from samestep.common.errors import percent
from samestep.common.files.reading import read_toml
from samestep.common.frameworks import conventions
from samestep.common.porting.ways.identify import Settings

_GELUS = {"exact gelu": "exact GELU", "gelu by tanh": "GELU by tanh", "gelu by sigmoid": "GELU by sigmoid"}
_DEFAULTS: Settings = {"activation": "none", "factor": 1.0, "after": False, "constant": 0.0}
"""The value of a setting in a way that does not have it."""


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
    return _lacking(ours, theirs) or f"{{a}} {does({'terms': one})}, {{b}} {does({'terms': other})}"


def _sum(one: object, other: object) -> str:
    ours, theirs = _listed(one), _listed(other)
    verb = "takes" if len(ours) == len(theirs) == 1 else "adds"
    return _lacking(ours, theirs) or f"{{a}} {verb} {_listing(one)}, {{b}} {_listing(other)}"


def _lacking(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """Says which terms one side leaves out; "" unless its terms are otherwise those of the other side."""
    for more, fewer, lacks in ((ours, theirs, "{b}"), (theirs, ours, "{a}")):
        if set(fewer) < set(more):
            return f"{lacks} does not add {' and '.join(each for each in more if each not in fewer)}"
    return ""


def _listing(values: object) -> str:
    numbers = [_number(each) for each in values] if isinstance(values, tuple) else [_number(values)]
    return " and ".join(filter(None, (", ".join(numbers[:-1]), *numbers[-1:])))


def _listed(terms: object) -> list[str]:
    return [str(each) for each in terms] if isinstance(terms, tuple) else [str(terms)]


def _named(value: object) -> str:
    return "none" if value is None else str(value)


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def _filled(sentence: str, **values: object) -> str:
    """Fills values into a sentence: `{name}` as it is, `{name:listed}` as a list in words."""
    for name, value in values.items():
        sentence = sentence.replace(f"{{{name}}}", str(value)).replace(f"{{{name}:listed}}", _listing(value))
    return sentence


_SENTENCES: Mapping[str, Mapping[str, str]] = read_toml(Path(__file__).with_suffix(".toml"))  # pyrefly: ignore
_SAY, _DOES = _SENTENCES["differ"], _SENTENCES["does"]
"""Setting -> the sentence for a difference in it, in the order of a message; and the words for a step of only one side."""
_SAY_BY_VALUES: Mapping[str, Callable[[object, object], str]] = {
    "kernel": lambda one, other: f"the square kernel is transposed in {'{b}' if other == 'transposed' else '{a}'}",
    "activation": _activation,
    "inner activation": lambda one, other: f"between its two parts, {_activation(one, other)}",
    "padding": _padding,
    "ahead": _ahead,
    "biases": lambda one, other: f"{{a}} adds {_which(one)}, {{b}} {_which(other)}",
    "terms": _terms,
    "sum": _sum,
}
"""Setting -> the function that makes its sentence, where the table has none."""
_NONE_IS_A_VALUE = ("ahead",)
_DETAILS = ("over", "along", "into", "by", "scale")
"""Settings that are not mentioned if only one side has them, because the other side computes in another way."""
_IMPLIED = {"rounding": ("padding",), "statistics": ("epsilon",)}
"""Setting -> the settings that follow from it."""


def _which(biases: object) -> str:
    return {"both": "both biases", "the first": "one bias"}.get(str(biases), "no bias")


def does(settings: Settings) -> str:
    """Returns what one side does, in words, from the settings of a way that the other side does not take."""
    kind = next((kind for kind in _DOES if settings.get(kind) is not None), None)
    if kind == "terms" and (settings.get("activation", "none") != "none" or settings.get("factor", 1.0) != 1.0):
        times = f"{_number(settings['factor'])} times " if settings.get("factor", 1.0) != 1.0 else ""
        made = "" if settings.get("activation", "none") == "none" else f"{settings['activation']} of "
        return f"takes {times}{made}{' and '.join(_listed(settings['terms']))}"
    if kind is None:
        return "does something else"
    value = settings[kind]
    verb = "adds" if len(_listed(value)) > 1 else "takes"
    return _filled(_DOES[kind], value=value, adds=verb, s="" if value == 1 else "s")


def say(one: Settings, other: Settings) -> str:
    """Returns the cause, from the settings of torch and of TensorFlow.

    Args:
        one: Torch's settings.
        other: TensorFlow's settings.
    """
    if {*one} & {*_DOES} != {*other} & {*_DOES}:
        return f"{{a}} {does(one)}, {{b}} {does(other)}"
    ours, theirs = ({**_DEFAULTS, **each} for each in (one, other))
    differing = [name for name in _SAY if ours.get(name) != theirs.get(name)]
    implied = {each for name in differing for each in _IMPLIED.get(name, ())}
    return "; ".join(filter(None, (_say(name, ours, theirs) for name in differing if name not in implied)))


def _say(name: str, one: Settings, other: Settings) -> str:
    """Puts a differing setting into words; one that only one side has is named with that side."""
    for ours, theirs, who in ((one, other, "{a}"), (other, one, "{b}")):
        if name not in theirs:
            return "" if name in _DETAILS else f"only {who} has {name} {ours[name]}" if ours[name] is not None else ""
    if None in (one[name], other[name]) and name not in _NONE_IS_A_VALUE:
        return f"{{a}}'s {name} is {_named(one[name])}, {{b}}'s {_named(other[name])}"
    if name in _SAY_BY_VALUES:
        return _SAY_BY_VALUES[name](one[name], other[name])
    has, lacks = ("{a}", "{b}") if one[name] else ("{b}", "{a}")
    return _filled(_SAY[name], one=one[name], other=other[name], has=has, lacks=lacks)


def name_sides(text: str, frameworks: Sequence[str]) -> str:
    """Replaces `{a}`, `{b}`, `{a:key}` and `{b:key}`, which all other functions here write, with the names of the two sides.

    Args:
        text: A sentence.
        frameworks: The frameworks of the source and of the target.
    """
    for mark, framework in zip("ab", frameworks, strict=True):
        text = text.replace(f"{{{mark}}}", conventions(framework).name).replace(f"{{{mark}:key}}", framework)
    return text


def spell_deviation(ratio: float) -> str:
    """Spells a deviation, as in 12 % or 3.4e-06."""
    if not math.isfinite(ratio):
        return "not finite"
    if ratio >= 10:
        return f"{ratio:.3g} times"
    return percent(ratio, (ratio < 0.1) + (ratio < 0.01)) if ratio >= 1e-3 else f"{ratio:.1e}"


def relative(one: float, other: float) -> float:
    """Returns how far two numbers are apart, relative to the larger one; infinite if one of them is not finite.

    Args:
        one: A number.
        other: Another one.
    """
    if one == other and math.isfinite(one):
        return 0.0
    found = abs(one - other) / max(abs(one), abs(other), 1e-300)
    return found if math.isfinite(found) else math.inf

"""What stands between two layers: identified from what came out of the layers before and what went into the next one."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.array_layouts import Both
from samestep.common.porting.functions import FUNCTION
from samestep.common.porting.model_trace import LayerCall
from samestep.common.porting.ways import formulas, layers, space
from samestep.common.porting.ways.identify import (
    EXAMPLES,
    LAST_STEP,
    Candidate,
    Settings,
    differing,
    identify,
    is_other,
)
from samestep.common.porting.ways.programs import Named, programs, spell_term
from samestep.common.porting.words import does

_MOST_SOURCES = 6
"""How many arrays back an operation may reach: past a block, to where its residual branch started."""
_MOST_HEADS = 16
_ROLES = ("query", "key", "value")
_MOST_STEPS = 8
"""How many results are looked at that only one side has."""
Found = tuple[Settings, Settings]
Gap = tuple[Sequence[LayerCall], Sequence[LayerCall]]
"""The calls of each side, between two that are aligned, which have no counterpart."""


def identify_between(
    before: Sequence[Aligned], target: Both, gap: Gap = ((), ()), held: Mapping[str, np.ndarray] | None = None
) -> Found | str | None:
    """Returns the settings of what stands before a layer on both sides, if both can be identified and they differ.

    Args:
        before: The layers before, whose outputs agree.
        target: What went into the next layer.
        gap: What each side computes in between that the other side does not.
        held: The parameters that may take part in it.

    Returns:
        The settings; or what only one side does, in words; None if it is not known.
    """
    sources = [
        [*_sources(before, side, len(target[side])), *_rows(held or {}, target[side]), *_masks(gap)] for side in (0, 1)
    ]
    found = [_identify(sources[side], target[side]) for side in (0, 1)]
    return differing(*_in_one_kind(found)) or _identify_steps(sources, gap)


def _identify_steps(sources: Sequence[Named], gap: Gap) -> Found | str | None:
    """Identifies the steps of each side that the other one does not take, each from those before, to the first that differs."""
    chains: list[list[Settings]] = []
    for given, calls in zip(sources, gap, strict=True):
        chain, known = list[Settings](), list(given)
        for call in calls[:_MOST_STEPS]:
            settings = _identify(known, call.output) if call.output.ndim else None
            if settings is not None and not _is_nothing(settings):
                chain.append(_as_program(settings))
                known.insert(0, (LAST_STEP, _few(call.output)))
        chains.append(chain)
    return _differing_step(*chains)


def _differing_step(ours: Sequence[Settings], theirs: Sequence[Settings]) -> Found | str | None:
    """Returns the step that only one side takes, if the others are the same; else the first two of one kind that differ."""
    for more, fewer, has, lacks in ((ours, theirs, "{a}", "{b}"), (theirs, ours, "{b}", "{a}")):
        for place, step in enumerate(more):
            rest = [*more[:place], *more[place + 1 :]]
            if fewer and len(rest) == len(fewer) and not any(map(is_other, rest, fewer)):
                return f"{has} {does(step)}, {lacks} does not"
    for one, other in itertools.chain(zip(ours, theirs, strict=False), itertools.product(ours, theirs)):
        if one.keys() == other.keys() and is_other(one, other):
            same = {name for name in one if not is_other({name: one[name]}, {name: other[name]})}
            inner = {"terms"} if one.get("activation") != other.get("activation") else set[str]()
            return _without(one, same | inner), _without(other, same | inner)
    return None


def _without(settings: Settings, names: set[str]) -> Settings:
    return {name: value for name, value in settings.items() if name not in names}


def _is_nothing(settings: Settings) -> bool:
    """Returns whether a step gives what it was given."""
    terms = settings.get("terms", ())
    return (
        settings.get("activation") == "none"
        and "factor" not in settings
        and isinstance(terms, tuple)
        and len(terms) == 1
    )


def _rows(held: Mapping[str, np.ndarray], target: np.ndarray) -> Named:
    """Returns the parameters, and as many of their rows in a row as a target has positions."""
    found: list[tuple[str, np.ndarray]] = []
    for role, value in held.items():
        found.append((f"its {role}", value))
        count = target.shape[1] if target.ndim > 2 else 0
        if count and value.ndim == target.ndim - 1 and value.shape[0] > count:
            for start in range(min(len(value) - count + 1, _MOST_STEPS)):
                found.append((f"rows {start} to {start + count - 1} of its {role}", value[start : start + count]))
    return found


def _masks(gap: Gap) -> Named:
    given = [each for calls in gap for call in calls for each in call.inputs if each.dtype == bool and each.ndim == 2]
    return [("the mask", _few(each)) for each in given[:1]]


def _identify(sources: Named, target: np.ndarray) -> Settings | None:
    few = _few(target)
    real = [(name, each) for name, each in sources if each.dtype != bool]
    return identify(few, itertools.chain(_candidates(real, few), programs(real, few), _averages(sources, few)))


def _averages(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Means over the positions that a mask leaves."""
    for _, mask in (each for each in sources if each[1].dtype == bool):
        for _, x in sources[:_MOST_SOURCES]:
            if x.ndim == 3 and x.shape[:2] == mask.shape and target.shape == (len(x), x.shape[-1]):
                settings = {"pools": "mean of what is not masked"}
                yield settings, lambda x=x, m=mask[..., None]: (x * m).sum(1) / m.sum(1)


def _in_one_kind(found: Iterable[Settings | None]) -> list[Settings | None]:
    """Returns the settings of both sides, as those of programs where they are of two kinds: an activation may be one as well."""
    one, other = found
    return (
        [one, other]
        if one is None or other is None or one.keys() == other.keys()
        else [*map(_as_program, (one, other))]
    )


def _as_program(found: Settings) -> Settings:
    terms, activation = found.get("terms"), found.get("activation")
    if not isinstance(terms, tuple) or not {*found} <= {"activation", "terms", "factor"}:
        return found
    if activation == "softmax" and "factor" not in found and len(terms) == 1:
        return {"softmax": "the last axis"}
    factor = found.get("factor", 1.0)
    assert isinstance(factor, float)
    return {"sum": tuple(spell_term(name, factor) for name in sorted(terms))} if activation == "none" else found


def _few(array: np.ndarray) -> np.ndarray:
    return array[:EXAMPLES]


def _sources(before: Sequence[Aligned], side: int, examples: int) -> list[tuple[str, np.ndarray]]:
    """Returns what is at hand on one side, the latest first: outputs, then what went into the same layers.

    Both sides call it by torch's name, so that it is told from what is another array.
    """
    found: list[tuple[str, np.ndarray]] = []
    functions: list[tuple[str, np.ndarray]] = []
    for layer in reversed(before):
        output = layer.output[side]
        name = f"the output of `{layer.source.name}`"
        named = _numbered(name, [*found, *functions]), output[:EXAMPLES] if len(output) == examples else output
        (functions if layer.family == FUNCTION else found).append(named)
        if layer.inputs is not None and layer.inputs[side].dtype.kind == "f":
            found.append((f"the input of `{layer.source.name}`", layer.inputs[side][:EXAMPLES]))
    return [*found[: 2 * _MOST_SOURCES], *functions[:_MOST_SOURCES]]


def _numbered(name: str, found: Named) -> str:
    """Returns a name that is not among some, for one of several calls with one name."""
    count = sum(each == name or each.startswith(f"{name} (") for each, _ in found)
    return f"{name} ({count + 1} calls before the last)" if count else name


def _candidates(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    alike = [(name, source) for name, source in sources if source.shape == target.shape]
    for name, function in formulas.ACTIVATIONS.items():
        for what, source in alike[:3]:
            yield {"activation": name, "terms": (what,)}, lambda f=function, x=source: f(x)
    for name, function in formulas.ACTIVATIONS.items():
        for what, source in alike[:1]:
            made = function(source)
            factor = float(np.vdot(made, target) / max(np.vdot(made, made), 1e-300))
            settings = {"activation": name, "terms": (what,), "factor": float(f"{factor:.6g}")}
            yield settings, lambda x=made, c=factor: c * x
    for name, function in formulas.ACTIVATIONS.items():
        for (first, source), (other, added) in itertools.permutations(alike[:_MOST_SOURCES], 2):
            if source is not added:
                settings = {"activation": name, "terms": (first, other)}
                yield settings, lambda f=function, x=source, y=added: f(x) + y
                yield {**settings, "after": True}, lambda f=function, x=source, y=added: f(x + y)
    for _, source in sources[:3]:
        yield from space.flattened(source, target)
    yield from _attended(sources, target)
    for _, source in sources:
        yield from _pooled(source, target)


def _attended(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Attention, from three projections or from one that packs them."""
    if target.ndim != 3:
        return
    width = target.shape[-1]
    heads = [n for n in range(1, min(width, _MOST_HEADS) + 1) if width % n == 0]
    outputs = [
        source for name, source in sources if name.startswith("the output") and source.shape[:2] == target.shape[:2]
    ]
    packed = [source for source in outputs if source.shape[-1] == 3 * width]
    single = [source for source in outputs if source.shape == target.shape][:3]
    if packed:
        for settings, make in layers.attended(*np.split(packed[0], 3, axis=-1), heads):
            yield {**settings, "roles": ", ".join(_ROLES)}, make
    if len(single) == 3:
        named = dict(zip(reversed(_ROLES), single, strict=True))
        for roles in itertools.permutations(_ROLES):
            for settings, make in layers.attended(*(named[role] for role in roles), heads):
                yield {**settings, "roles": ", ".join(roles)}, make


def _pooled(source: np.ndarray, target: np.ndarray) -> Iterator[Candidate]:
    if source.ndim > 2 and target.shape == (source.shape[0], source.shape[-1]):
        axes = tuple(range(1, source.ndim - 1))
        for name, function in (("mean", np.mean), ("maximum", np.max), ("sum", np.sum)):
            yield {"pools": name}, lambda f=function: f(source, axis=axes)
        flat = source.reshape(len(source), -1, source.shape[-1])
        yield {"pools": "first position"}, lambda: flat[:, 0]
        yield {"pools": "last position"}, lambda: flat[:, -1]

"""Identifies what stands between two layers from the outputs of the layers before it and the input of the next one."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.array_layouts import Both, apart
from samestep.common.porting.functions import FUNCTION, moves
from samestep.common.porting.model_trace import LayerCall
from samestep.common.porting.ways.identify import EXAMPLES, LAST_STEP, SAME, Settings, differing, is_other
from samestep.common.porting.ways.one_step import MOST_SOURCES, few, identify_step
from samestep.common.porting.ways.programs import Named, spell_term
from samestep.common.porting.ways.recurrent import ends
from samestep.common.porting.ways.turns import turn
from samestep.common.porting.words import does

_MOST_STEPS = 12
"""The most results that are examined if only one side has them."""
Found = tuple[Settings, Settings]
Gap = tuple[Sequence[LayerCall], Sequence[LayerCall]]
"""The calls on each side, between two aligned ones, that have no counterpart."""


def identify_between(
    before: Sequence[Aligned], target: Both, gap: Gap = ((), ()), held: Mapping[str, np.ndarray] | None = None
) -> Found | str | None:
    """Returns the settings of what is before a layer on both sides, if both can be identified and they differ.

    Args:
        before: The preceding layers, whose outputs agree.
        target: The input of the next layer on both sides.
        gap: What each side computes in between that the other side does not.
        held: Name -> a parameter that may take part in it.

    Returns:
        The settings of both sides, or a sentence about what only one side does; None if neither is known.
    """
    steps = [[*(call.output for call in calls[:_MOST_STEPS]), target[side]] for side, calls in enumerate(gap)]
    sources = [
        [*_sources(before, side, len(target[side])), *_rows(held or {}, steps[side]), *_masks(gap)] for side in (0, 1)
    ]
    found = [identify_step(sources[side], target[side]) for side in (0, 1)]
    return differing(*_in_one_kind(found)) or (
        _identify_steps(sources, gap, len(target[0])) or _reordered(gap) or _added(sources, gap)
    )


def _reordered(gap: Gap) -> str | None:
    """Says how the result of a step becomes that of a step on the other side, if only the order of elements differs."""
    for one, other in itertools.product(*(calls[:_MOST_STEPS] for calls in gap)):
        turned = None if moves(one) or moves(other) else turn((one.output, other.output))
        if turned is not None and turned.name == "order":
            return turned.said
    return None


def _added(sources: Sequence[Named], gap: Gap) -> str | None:
    """Says how what one side adds to every example, such as fixed position encodings, becomes what the other adds."""
    for (name, x), (_, y) in zip(*sources, strict=False):
        for one, other in itertools.product(*(calls[:_MOST_STEPS] for calls in gap)):
            if not few(one.output).shape == few(other.output).shape == x.shape == y.shape:
                continue
            parts = [few(call.output) - given for call, given in ((one, x), (other, y))]
            if all(apart(part, part[:1] + 0 * part) <= SAME and np.ptp(part) for part in parts):
                turned = turn((parts[0][:1], parts[1][:1]))
                if turned is not None:
                    return f"of what is added to {name}, {turned.said}"
    return None


def _identify_steps(sources: Sequence[Named], gap: Gap, examples: int) -> Found | str | None:
    """Identifies the unmatched steps of each side, each from the steps before it, and returns the first that differs."""
    chains: list[list[Settings]] = []
    for given, calls in zip(sources, gap, strict=True):
        chain, known = list[Settings](), list(given)
        for call in [each for each in calls if each.output.shape[:1] == (examples,)][:_MOST_STEPS]:
            settings = identify_step(known, call.output)
            if settings is not None and not _is_nothing(settings):
                if (whole := _silu(chain, settings)) is not None:
                    chain[-1] = whole
                else:
                    chain.append(_as_program(settings))
                known.insert(0, (LAST_STEP, few(call.output)))
        chains.append(chain)
    return _differing_step(*chains)


def _silu(chain: Sequence[Settings], settings: Settings) -> Settings | None:
    """Returns SiLU if a step multiplies a sigmoid by the sigmoid's own input, as Keras writes it; None otherwise."""
    if chain and chain[-1] == {**settings, "activation": "sigmoid"} and settings.get("activation") == "silu":
        return settings
    factors, last = settings.get("product"), chain[-1] if chain else {}
    terms = last.get("terms") if last.get("activation") == "sigmoid" else None
    if isinstance(factors, tuple) and isinstance(terms, tuple) and set(factors) == {LAST_STEP, *terms}:
        return {**last, "activation": "silu"}
    return None


def _differing_step(ours: Sequence[Settings], theirs: Sequence[Settings]) -> Found | str | None:
    """Returns the step that only one side takes, if the others are the same; otherwise the first two of one kind that differ."""
    if (swapped := _swapped(ours, theirs)) is not None:
        return swapped
    for more, fewer, has, lacks in ((ours, theirs, "{a}", "{b}"), (theirs, ours, "{b}", "{a}")):
        hiding = [each for each in more if "hides" in each]
        if hiding and fewer and not any("hides" in each for each in fewer):
            return f"{has} {does(hiding[0])}, {lacks} does not"
        for place, step in enumerate(more):
            rest = [*more[:place], *more[place + 1 :]]
            if fewer and len(rest) == len(fewer) and not any(map(is_other, rest, fewer)):
                return f"{has} {does(step)}, {lacks} does not"
    ours, theirs = (
        [step for step in steps if step not in others] for steps, others in ((ours, theirs), (theirs, ours))
    )
    for one, other in itertools.chain(zip(ours, theirs, strict=False), itertools.product(ours, theirs)):
        if one.keys() == other.keys() and is_other(one, other):
            same = {name for name in one if not is_other({name: one[name]}, {name: other[name]})}
            inner = {"terms"} if one.get("activation") != other.get("activation") else set[str]()
            return _without(one, same | inner), _without(other, same | inner)
    return None


def _swapped(ours: Sequence[Settings], theirs: Sequence[Settings]) -> str | None:
    """Says which two consecutive steps of different kinds the sides take in opposite orders."""
    kinds = [[frozenset(step) for step in steps] for steps in (ours, theirs)]
    for place in range(min(map(len, kinds)) - 1):
        one, other = (each[place : place + 2] for each in kinds)
        if one[0] != one[1] and one == other[::-1]:
            first, second = (f"{does(steps[place])} and then {does(steps[place + 1])}" for steps in (ours, theirs))
            return f"{{a}} {first}, {{b}} {second}"
        if one != other:
            return None
    return None


def _without(settings: Settings, names: set[str]) -> Settings:
    return {name: value for name, value in settings.items() if name not in names}


def _is_nothing(settings: Settings) -> bool:
    """Returns whether a step returns its input unchanged."""
    terms = settings.get("terms", ())
    return (
        settings.get("activation") == "none"
        and "factor" not in settings
        and isinstance(terms, tuple)
        and len(terms) == 1
    )


def _rows(held: Mapping[str, np.ndarray], made: Sequence[np.ndarray]) -> Named:
    """Returns the parameters, and each run of their rows that is as long as one of the arrays has positions."""
    found: list[tuple[str, np.ndarray]] = []
    for name, value in held.items():
        is_alone = value.shape[:1] == (1,) and (value.ndim > 2 or value.ndim == made[-1].ndim > 1)
        value = value[0] if is_alone else value
        found.append((name, value))
        for count in dict.fromkeys(each.shape[1] for each in made if each.ndim == value.ndim + 1 > 2):
            for start in range(min(len(value) - count + 1, _MOST_STEPS) if count < len(value) else 0):
                found.append((f"rows {start} to {start + count - 1} of {name}", value[start : start + count]))
    return found


def _masks(gap: Gap) -> Named:
    given = [each for calls in gap for call in calls for each in call.inputs if each.dtype == bool and each.ndim == 2]
    return [("the mask", few(each)) for each in given[:1]]


def _in_one_kind(found: Iterable[Settings | None]) -> list[Settings | None]:
    """Returns the settings of both sides; if they are of two kinds, those of programs, since an activation can be one."""
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


def _sources(before: Sequence[Aligned], side: int, examples: int) -> list[tuple[str, np.ndarray]]:
    """Returns the arrays that are available on one side, the latest first: the outputs of layers and the layers' inputs.

    Both sides use torch's names, so the same array has the same name.
    """
    found: list[tuple[str, np.ndarray]] = []
    functions: list[tuple[str, np.ndarray]] = []
    for layer in reversed(before):
        output = layer.output[side]
        name = f"the output of `{layer.source.name}`"
        named = _numbered(name, [*found, *functions]), output[:EXAMPLES] if len(output) == examples else output
        (functions if layer.family == FUNCTION else found).append(named)
        found += [(_numbered(what, found), each) for what, each in ends(layer, side, EXAMPLES)]
        if layer.inputs is not None and layer.inputs[side].dtype.kind == "f":
            found.append((f"the input of `{layer.source.name}`", layer.inputs[side][:EXAMPLES]))
    return [*found[: 2 * MOST_SOURCES], *functions[:MOST_SOURCES]]


def _numbered(name: str, found: Named) -> str:
    """Returns a name that no earlier array has, for one of several calls with the same name."""
    count = sum(each == name or each.startswith(f"{name} (") for each, _ in found)
    return f"{name} ({count + 1} calls before the last)" if count else name

"""Aligns the calls of a torch model with those of a TensorFlow model, with their arrays in one layout."""

import dataclasses
import difflib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from samestep.common.porting.anchors import IN_PIECES, anchors_of, places_of
from samestep.common.porting.array_layouts import (
    Both,
    family,
    find_axes,
    has_same_numbers,
    is_same,
    nearest_layout,
    squeezed,
    turned,
    without_border,
    without_steps,
)
from samestep.common.porting.families import OTHER, SPATIAL, WITH_PARAMETERS
from samestep.common.porting.functions import FUNCTION, align_functions
from samestep.common.porting.matching.matching import Matching
from samestep.common.porting.model_trace import LayerCall, ModelTrace
from samestep.common.porting.trimming import Trim, find_trim, merged

Sides = tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]
"""The arrays of torch and of TensorFlow, by role or name."""
_SIDES = ("source", "target")
OUTPUTS = "outputs"
"""The kind of the last call of an alignment: what the model returns."""


@dataclasses.dataclass(frozen=True, eq=False)
class Aligned:
    """Two calls, one of each model, that compute the same thing.

    Attributes:
        source: The source's call.
        target: The target's call.
        family: The family of their layers.
        inputs: The first input of both; None if it cannot be compared.
        output: The output of both.
        evaluated: The output of both in evaluation, if known.
        gradient: The gradient of the loss with respect to the output, if known.
        params: The params of each side, by role, in the neutral layout.
        buffers: The buffers of each side, by role, in the neutral layout.
    """

    source: LayerCall
    target: LayerCall
    family: str
    inputs: Both | None
    output: Both
    evaluated: Both | None = None
    gradient: Both | None = None
    params: Sides = ({}, {})
    buffers: Sides = ({}, {})

    @property
    def names(self) -> str:
        """The names of both layers, as they appear in messages."""
        ours, theirs = (f"`{call.name}`" if call.name else "the model itself" for call in (self.source, self.target))
        return f"{{a:key}} {ours}, {{b:key}} {theirs}"


def align(matching: Matching, source: ModelTrace, target: ModelTrace, weights: Sides) -> list[Aligned]:
    """Aligns the calls of two models: layers by their matched parameters, and the calls between them by family and order.

    Args:
        matching: The matching of the parameters.
        source: The source's trace.
        target: The target's trace.
        weights: The parameters and buffers that both started from, by neutral name.

    Returns:
        The aligned calls in torch's order. The last one holds what the models return.
    """
    anchors = anchors_of(matching, source.calls, target.calls)
    held = _held(matching, weights)
    pairs = anchors | {(i, j): i for i, j in _between(sorted(anchors), source.calls, target.calls)}
    ours, theirs = source.calls, target.calls
    moved = {(i, j) for i, j in pairs if ours[i].name in source.stilled and _is_moved(ours[i].output, theirs[j].output)}
    pairs = {(i, j): first for (i, j), first in pairs.items() if not _pools(ours[i], theirs[j]) and (i, j) not in moved}
    both = {(i, j): (merged(ours, i, theirs[j]), merged(theirs, j, ours[i])) for i, j in pairs}
    placed = [
        (i, _aligned(*both[i, j], held, None if first is None else ours[first])) for (i, j), first in pairs.items()
    ]
    placed += _joined(matching, source.calls, target.calls)
    for i, j, axes in align_functions(source.calls, target.calls, pairs):
        one, other = source.calls[i], target.calls[j]
        placed.append((i, Aligned(one, other, FUNCTION, None, (turned(one.output, axes), other.output))))
    return [*(layer for _, layer in sorted(placed, key=lambda each: each[0])), _returned(source, target)]


def _pools(one: LayerCall, other: LayerCall) -> bool:
    """Returns whether one side pools in the same call that looks rows up; its counterpart is then the other side's pooling."""
    return one.kind == "EmbeddingBag" and one.output.ndim < other.output.ndim


def _is_moved(one: np.ndarray, other: np.ndarray) -> bool:
    """Returns whether two arrays differ only by a step that commutes with dropout, such as a ReLU before or after it."""
    is_turned = sorted(one.shape) == sorted(other.shape)
    holds_same = is_turned and has_same_numbers(one, other)
    return not holds_same and is_same(without_steps(one), without_steps(other))


def _joined(
    matching: Matching, source: Sequence[LayerCall], target: Sequence[LayerCall]
) -> Iterator[tuple[int, Aligned]]:
    """Yields projections that one side computes in one call and the other in three, the three joined, with torch's place."""
    for pair in matching.pairs:
        if pair.change not in IN_PIECES or len(pair.source[0].shape) < 2:
            continue
        sides = [
            [place for held in side for place in places_of(calls).get(re.split("[./][^./]*$", held.native)[0], [])]
            for side, calls in ((pair.source, source), (pair.target, target))
        ]
        if sorted(map(len, sides)) != [1, 3]:
            continue  # inside an attention layer that is recorded as one call, or called more than once
        one, other = ([calls[place] for place in side] for side, calls in zip(sides, (source, target), strict=True))
        yield max(sides[0]), Aligned(_join(one), _join(other), "linear", None, (_join(one).output, _join(other).output))


def _join(calls: Sequence[LayerCall]) -> LayerCall:
    if len(calls) == 1:
        return calls[0]
    name = ", ".join(call.name for call in calls)
    return dataclasses.replace(calls[-1], name=name, output=np.concatenate([call.output for call in calls], axis=-1))


def _between(
    anchors: Sequence[tuple[int, int]], source: Sequence[LayerCall], target: Sequence[LayerCall]
) -> Iterator[tuple[int, int]]:
    """Yields the places of calls between the anchors that belong together, aligned by family."""
    rising = [(-1, -1)]
    for i, j in anchors:
        if j > rising[-1][1]:
            rising.append((i, j))
    taken = ({i for i, _ in anchors}, {j for _, j in anchors})
    for (i, j), (end_i, end_j) in itertools.pairwise([*rising, (len(source), len(target))]):
        own = [k for k in range(i + 1, end_i) if k not in taken[0]]
        other = [k for k in range(j + 1, end_j) if k not in taken[1]]
        kinds = [family(source[k]) for k in own], [family(target[k]) for k in other]
        blocks = difflib.SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks()
        for start, start_other, size in blocks:
            for k in range(size):
                if kinds[0][start + k] not in WITH_PARAMETERS:
                    yield own[start + k], other[start_other + k]


def _held(matching: Matching, weights: Sides) -> dict[tuple[str, str], tuple[dict[str, np.ndarray], ...]]:
    """Returns the parameters and the buffers by role, for each (side, name of a call)."""
    held: dict[tuple[str, str], tuple[dict[str, np.ndarray], ...]] = {}
    for both in matching.layers:
        for side, layer, values in zip(_SIDES, both, weights, strict=True):
            params, buffers = held.setdefault((side, layer.call), ({}, {}))
            prefix = "" if layer.call == layer.name else f"{re.split('[./]', layer.name)[-1]}/"
            params |= {prefix + role: values[each.neutral] for role, each in layer.params.items()}
            buffers |= {role: values[each.neutral] for role, each in layer.buffers.items()}
    return held


def _aligned(
    one: LayerCall,
    other: LayerCall,
    held: Mapping[tuple[str, str], tuple[dict[str, np.ndarray], ...]],
    first: LayerCall | None,
) -> Aligned:
    kind = family(one) if family(one) != OTHER else family(other)
    axes = find_axes(kind, one, other)
    nothing: tuple[dict[str, np.ndarray], ...] = ({}, {})
    sides = [held.get((side, call.name), nothing) for side, call in zip(_SIDES, (one, other), strict=True)]
    inputs = None
    families = {family(one), family(other)}
    is_mixed = families == {"convolution", "linear"}  # a convolution of single pixels is a linear layer
    same = OTHER in families or len(families) == 1 or is_mixed
    if same and first is not None and first.inputs and other.inputs:
        # an attention layer that is one call has other inputs than its output projection
        ours, theirs = first.inputs[0], other.inputs[0]
        given = turned(ours, axes), theirs
        if given[0].shape != theirs.shape:
            given = squeezed(turned(ours, nearest_layout(ours, theirs)), theirs)
        if given[0].shape != theirs.shape and kind in SPATIAL:
            given = without_border(turned(ours, axes)), without_border(theirs)
        inputs = given if given[0].shape == given[1].shape else None
    output = squeezed(turned(one.output, axes), other.output)
    cut = find_trim(kind, *output)
    return Aligned(
        source=one,
        target=other,
        family="linear" if is_mixed else kind,
        inputs=inputs,
        output=cut(output),
        evaluated=_both(one.evaluated, other.evaluated, axes, cut),
        gradient=_both(one.gradient, other.gradient, axes, cut),
        params=(sides[0][0], sides[1][0]),
        buffers=(sides[0][1], sides[1][1]),
    )


def _both(one: np.ndarray | None, other: np.ndarray | None, axes: tuple[int, ...], cut: Trim) -> Both | None:
    if one is None or other is None:
        return None
    return cut(squeezed(turned(one, axes), other))


def _returned(source: ModelTrace, target: ModelTrace) -> Aligned:
    """Aligns the outputs of the models. Axes may be permuted, since each side's loss has its own axis for the classes."""
    one, other = source.outputs, target.outputs
    axes = nearest_layout(one, other) if one.shape != other.shape else tuple(range(one.ndim))
    calls = [
        LayerCall(
            name="the outputs", kind=OUTPUTS, settings={}, inputs=(), output=each.outputs, evaluated=each.evaluated
        )
        for each in (source, target)
    ]
    return Aligned(
        source=calls[0],
        target=calls[1],
        family=OUTPUTS,
        inputs=None,
        output=(turned(one, axes), other),
        evaluated=_both(source.evaluated, target.evaluated, axes, lambda both: both),
    )

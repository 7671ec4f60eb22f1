"""What stands between two layers: identified from what came out of the layers before and what went into the next one."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from samestep.common.porting import formulas, space, ways
from samestep.common.porting.alignment import Aligned
from samestep.common.porting.array_layouts import Both
from samestep.common.porting.identify import EXAMPLES, Candidate, Settings, differing, identify

_MOST_SOURCES = 6
"""How many arrays back an operation may reach: past a block, to where its residual branch started."""
_MOST_HEADS = 16


def identify_between(before: Sequence[Aligned], target: Both) -> tuple[Settings, Settings] | None:
    """Returns the settings of what stands before a layer on both sides, if both can be identified and they differ.

    Args:
        before: The layers before, whose outputs agree.
        target: What went into the next layer.
    """
    few = [each[:EXAMPLES] for each in target]
    found = [identify(few[side], _candidates(_sources(before, side), few[side])) for side in (0, 1)]
    return differing(*found)


def _sources(before: Sequence[Aligned], side: int) -> list[tuple[str, np.ndarray]]:
    """Returns what is at hand on one side, the latest first: outputs, then what went into the same layers.

    Both sides call it by torch's name, so that it is told from what is another array.
    """
    found: list[tuple[str, np.ndarray]] = []
    for layer in reversed(before):
        found.append((f"the output of `{layer.source.name}`", layer.output[side][:EXAMPLES]))
        if layer.inputs is not None and layer.inputs[side].dtype.kind == "f":
            found.append((f"the input of `{layer.source.name}`", layer.inputs[side][:EXAMPLES]))
    return found[: 2 * _MOST_SOURCES]


def _candidates(sources: Sequence[tuple[str, np.ndarray]], target: np.ndarray) -> Iterator[Candidate]:
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
    for _, source in sources[:2]:
        yield from _pooled(source, target)


def _attended(sources: Sequence[tuple[str, np.ndarray]], target: np.ndarray) -> Iterator[Candidate]:
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
        yield from ways.attended(*np.split(packed[0], 3, axis=-1), heads)
    if len(single) == 3:
        for value, key, query in (single, *list(itertools.permutations(single))[1:]):
            yield from ways.attended(query, key, value, heads)


def _pooled(source: np.ndarray, target: np.ndarray) -> Iterator[Candidate]:
    if source.ndim > 2 and target.shape == (source.shape[0], source.shape[-1]):
        axes = tuple(range(1, source.ndim - 1))
        for name, function in (("mean", np.mean), ("maximum", np.max), ("sum", np.sum)):
            yield {"pools": name}, lambda f=function: f(source, axis=axes)
        flat = source.reshape(len(source), -1, source.shape[-1])
        yield {"pools": "first position"}, lambda: flat[:, 0]
        yield {"pools": "last position"}, lambda: flat[:, -1]

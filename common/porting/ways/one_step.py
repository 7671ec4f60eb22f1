"""One step between two layers: tries every known way to make the next array from the available ones."""

import itertools
from collections.abc import Iterator

import numpy as np

from samestep.common.porting.turning import POOLS, pool
from samestep.common.porting.ways import formulas, layers, space
from samestep.common.porting.ways.fitted_activations import measured
from samestep.common.porting.ways.identify import EXAMPLES, Candidate, Settings, each_way, identify
from samestep.common.porting.ways.programs import Named, programs
from samestep.common.porting.ways.vectors import vectors

MOST_SOURCES = 6
"""How many arrays back an operation may reach: past a block, to where its residual branch started."""
_MOST_HEADS = 16
ROLES = ("query", "key", "value")


def identify_step(sources: Named, target: np.ndarray) -> Settings | None:
    """Returns the settings of the way in which an array was made; None if no known way fits.

    Args:
        sources: The available arrays; Boolean ones are masks.
        target: The array that was made.
    """
    seen = few(target)
    real = [(name, each) for name, each in sources if each.dtype != bool]
    return identify(seen, itertools.chain(*(make(real, seen) for make in _STEPS), _averages(sources, seen)))


def few(array: np.ndarray) -> np.ndarray:
    """Returns the examples of an array that are examined."""
    return array[:EXAMPLES]


def _averages(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Yields means over the positions that a mask leaves."""
    for _, mask in (each for each in sources if each[1].dtype == bool):
        for _, x in sources[:MOST_SOURCES]:
            if x.ndim == 3 and x.shape[:2] == mask.shape and target.shape == (len(x), x.shape[-1]):
                settings = {"pools": "mean of what is not masked"}
                yield settings, lambda x=x, m=mask[..., None]: (x * m).sum(1) / m.sum(1)


def _candidates(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    alike = [(name, source) for name, source in sources if source.shape == target.shape]
    is_alone = target.ndim and target.shape[-1] == 1  # a softmax over a single element is always 1
    functions = {name: f for name, f in formulas.ACTIVATIONS.items() if not (is_alone and "softmax" in name)}
    fitted = ((found, each) for each in alike[:3] for found in measured(each[1], target))
    for (name, function), (what, source) in itertools.chain(itertools.product(functions.items(), alike[:3]), fitted):
        yield {"activation": name, "terms": (what,)}, lambda f=function, x=source: f(x)
    for name, function in functions.items():
        for what, source in alike[:1]:
            made = function(source)
            factor = float(np.vdot(made, target) / max(np.vdot(made, made), 1e-300))
            settings = {"activation": name, "terms": (what,), "factor": float(f"{factor:.6g}")}
            if factor:  # an array of zeros would be a multiple of anything
                yield settings, lambda x=made, c=factor: c * x
    for name, function in functions.items():
        for (first, source), (other, added) in itertools.permutations(alike[:MOST_SOURCES], 2):
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
    """Yields attention from three projections or from one that packs them."""
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
        query, key, value = np.split(packed[0], 3, axis=-1)
        for settings, make in layers.attended(query, key, value, heads):
            yield {**settings, "roles": ", ".join(ROLES)}, make
    if len(single) == 3:
        named = dict(zip(reversed(ROLES), single, strict=True))
        for roles in itertools.permutations(ROLES):
            query, key, value = (named[role] for role in roles)
            for settings, make in layers.attended(query, key, value, heads):
                yield {**settings, "roles": ", ".join(roles)}, make


def _pooled(source: np.ndarray, target: np.ndarray) -> Iterator[Candidate]:
    if source.ndim > 2 and target.shape == (source.shape[0], source.shape[-1]):
        yield from each_way(lambda pools: pool(source, pools), pools=POOLS)


_STEPS = (_candidates, vectors, programs)
"""The kinds of steps, the likeliest first."""

"""Finds a cause by identifying which of many known ways to compute a layer gives the numbers that were seen.

Each side is identified alone, from its own inputs. The settings in which the two differ are the cause.
"""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.array_layouts import apart_but_hidden

Settings = Mapping[str, object]
Candidate = tuple[Settings, Callable[[], np.ndarray]]
"""The settings of one way to compute a layer, and the function that computes its output."""
Way = Callable[[np.ndarray, Mapping[str, np.ndarray], Aligned], Iterator[Candidate]]
"""(inputs, parameters, the layer) -> ways to compute it, the likeliest first."""
EXAMPLES = 2
"""The most examples of a batch that are examined, since a large model's arrays are computed in hundreds of ways."""
LAST_STEP = "the step before"
"""The name of a step that only one side took; what comes after it may be the same on both."""
_NEAR = 2e-6
"""How far two measured settings may be apart, relative."""
SAME = 1e-7
"""How far a candidate may be from what was seen: a framework may hold a constant in float32."""
MORE = {"attention": 8}
"""Family -> the most examples that are examined, since not every example has padding."""
FLOAT32 = {"resizing": 1e-6, "attention": 1e-6}
"""Family -> the bound where TensorFlow computes everything in float32, or masks scores by adding -1e9 to them."""


def each_way(make: Callable[..., np.ndarray], **choices: Iterable[object]) -> Iterator[Candidate]:
    """Yields a way to compute a layer for each combination of some settings.

    Args:
        make: Computes the layer, given the settings by name.
        **choices: Setting -> its possible values, the likeliest first; the last setting varies fastest.
    """
    for values in itertools.product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))
        yield settings, functools.partial(make, **settings)


def biases(params: Mapping[str, np.ndarray]) -> dict[bool, np.ndarray | float]:
    """Returns what a layer adds with its bias and without it; only the latter if it has no bias."""
    return ({True: params["bias"]} if "bias" in params else {}) | {False: 0.0}


def identify(seen: np.ndarray, candidates: Iterable[Candidate], same: float = SAME) -> Settings | None:
    """Returns the settings of the nearest candidate that gives what was seen; None if none does.

    Args:
        seen: The output.
        candidates: The likeliest first; the first exact one is taken.
        same: How far a candidate may be off.
    """
    best, nearest = None, same
    for settings, make in candidates:
        try:
            distance = apart_but_hidden(make(), seen)
        except (ValueError, IndexError, FloatingPointError):
            continue  # shapes that this way cannot take
        if distance < nearest:
            best, nearest = settings, distance
        if nearest < 1e-12:
            break
    return best


def identify_both(layer: Aligned, ways: Way) -> tuple[Settings, Settings] | None:
    """Returns the settings of both sides of a layer, if both can be identified and they differ.

    Args:
        layer: The layer, whose outputs differ although its inputs do not.
        ways: Yields the candidates for one side.
    """
    if layer.inputs is None:
        return None
    if layer.family != "normalization":  # a normalization may take the statistics of the whole batch
        few = slice(MORE.get(layer.family, EXAMPLES))
        inputs, output = ((one[few], other[few]) for one, other in (layer.inputs, layer.output))
        layer = dataclasses.replace(layer, inputs=inputs, output=output)
    params = {**layer.params[1], **layer.params[0]}
    found = [
        identify(output, ways(inputs, params, layer), FLOAT32.get(layer.family, SAME))
        for inputs, output in zip(layer.inputs or (), layer.output, strict=True)
    ]
    return differing(*found)


def differing(one: Settings | None, other: Settings | None) -> tuple[Settings, Settings] | None:
    """Returns both settings, if both sides were identified and they differ.

    Args:
        one: Torch's settings.
        other: TensorFlow's settings.
    """
    return None if one is None or other is None or not is_other(one, other) else (one, other)


def is_other(one: Settings, other: Settings) -> bool:
    """Returns whether two ways have settings that differ by more than rounding.

    Args:
        one: The settings of one way.
        other: The settings of the other way.
    """
    return one.keys() != other.keys() or any(not _is_near(one[name], other[name]) for name in one)


def _are_steps(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Returns whether two lists of terms differ in one term only, which is a step before on one side."""
    rest = [list((Counter(a) - Counter(b)).elements()) for a, b in ((one, other), (other, one))]
    return len(rest[0]) == len(rest[1]) == 1 and LAST_STEP in (rest[0][0], rest[1][0])


def _is_near(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= _NEAR * max(abs(one), abs(other))
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return all(map(_is_near, one, other)) or _are_steps(one, other)
    return one == other or LAST_STEP in (one, other)

"""Matches the parameters of a torch model with those of a TensorFlow model, by shape, name and order of execution."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from samestep.common.errors import ConfigError, unknown
from samestep.common.porting.matching.leftover import explain_left
from samestep.common.porting.matching.likeness import likeness
from samestep.common.porting.matching.packing import packed
from samestep.common.porting.matching.pairing import Matched, Pair, fit
from samestep.common.workload.declaration import BUILDERS
from samestep.common.workload.models.layer import LayerTensor, ParameterLayer

Score = Callable[[ParameterLayer, ParameterLayer], float]
"""(a layer of the source, one of the target) -> how well they match; 0 if they do not."""
_WHOLE, _PARTIAL = 2.0, 1.5
"""The score of a pair in an alignment: if all parameters match, or if one side has some that the other lacks."""


@dataclasses.dataclass(frozen=True)
class Matching:
    """The parameters of two implementations of one model, matched.

    Attributes:
        pairs: The matched parameters, in torch's order of execution.
        only_source: Parameters of matched layers that TensorFlow's layer lacks, with the two layers.
        only_target: Parameters of matched layers that torch's layer lacks, with the two layers.
    """

    pairs: tuple[Pair, ...]
    only_source: tuple[tuple[LayerTensor, ParameterLayer, ParameterLayer], ...] = ()
    only_target: tuple[tuple[LayerTensor, ParameterLayer, ParameterLayer], ...] = ()

    def to_target(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Makes those of TensorFlow's arrays for which torch's are given, by neutral name."""
        return {
            name: array
            for pair in self.pairs
            if all(held.neutral in values for held in pair.source)
            for name, array in pair.to_target(values).items()
        }

    def to_source(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Makes all of torch's arrays from TensorFlow's, by neutral name, in the neutral layout."""
        return {name: array for pair in self.pairs for name, array in pair.to_source(values).items()}

    @property
    def layers(self) -> tuple[tuple[ParameterLayer, ParameterLayer], ...]:
        """The layers that were matched, each pair once."""
        return tuple({(one.name, other.name): (one, other) for one, other in (p.layers for p in self.pairs)}.values())

    @property
    def parameters(self) -> tuple[Pair, ...]:
        """The pairs that are not buffers."""
        return tuple(pair for pair in self.pairs if not pair.is_buffer)

    def changed(self, pair: Pair, change: str) -> "Matching":
        """Returns the matching with one parameter, and those of the same shape in the same layers, under another change.

        Args:
            pair: The parameter.
            change: The new change, a key of `CHANGES`.
        """
        alike = pair.layers, pair.target[0].shape
        changes = [change if (each.layers, each.target[0].shape) == alike else each.change for each in self.pairs]
        pairs = (dataclasses.replace(each, change=new) for each, new in zip(self.pairs, changes, strict=True))
        return dataclasses.replace(self, pairs=tuple(pairs))


def match(
    source: Sequence[ParameterLayer],
    target: Sequence[ParameterLayer],
    names: Mapping[str, str] | None = None,
    frameworks: Sequence[str] = BUILDERS,
) -> Matching:
    """Matches the layers of two implementations, and with them their parameters.

    Args:
        source: The layers of the source in the order of execution.
        target: The layers of the target in the order of execution.
        names: What the user specified: the source's layer or parameter -> the target's.
        frameworks: The frameworks of both, for messages.

    Raises:
        ConfigError: A parameter is left over, or a name does not exist; the message lists both sides.
    """
    pairs, source_left, target_left = _take_named([*source], [*target], names or {}, frameworks)
    for step in (packed, _by_name, _by_order, _by_shape):
        found, source_left, target_left = step(source_left, target_left)
        pairs += found
    for side, left in enumerate((source_left, target_left)):
        pairs += _completed(pairs, left, side)
    if source_left or target_left:
        raise ConfigError(explain_left((source_left, target_left), (source, target), pairs, frameworks))
    place = {layer.name: number for number, layer in enumerate(source)}
    pairs.sort(key=lambda pair: place.get(pair.layers[0].name, len(place)))
    return Matching(tuple(pairs), _lacking(pairs, 0), _lacking(pairs, 1))


def _lacking(pairs: Sequence[Pair], side: int) -> tuple[tuple[LayerTensor, ParameterLayer, ParameterLayer], ...]:
    taken = {held.neutral for pair in pairs for held in (pair.source, pair.target)[side]}
    layers = {pair.layers[side].name: pair.layers for pair in pairs}
    lacking = [(held, *both) for both in layers.values() for held in both[side].params.values()]
    return tuple(each for each in lacking if each[0].neutral not in taken)


def _completed(pairs: Sequence[Pair], left: list[ParameterLayer], side: int) -> list[Pair]:
    """Pairs a parameter that a user's module holds itself with the unmatched one of the layer that the module was matched with.

    Args:
        pairs: The matched parameters.
        left: The unmatched layers of one side; those that are paired here are removed from it.
        side: The side, 0 for the source.
    """
    found: list[Pair] = []
    for layer in [each for each in left if len(each.params) == 1]:
        (held,) = layer.params.values()
        partners = {pair.layers[1 - side].name for pair in pairs if pair.layers[side].call == layer.call}
        for other, *layers in _lacking([*pairs, *found], 1 - side):
            partner = layers[1 - side]
            if partner.name in partners and other.neutral_shape == held.neutral_shape:
                both, params = ((layer, partner), (held, other)) if side == 0 else ((partner, layer), (other, held))
                found.append(Pair(both, params[:1], params[1:], "same"))
                left.remove(layer)
                break
    return found


def _take_named(
    source: list[ParameterLayer],
    target: list[ParameterLayer],
    names: Mapping[str, str],
    frameworks: Sequence[str],
) -> Matched:
    """Matches what the user named: layers or single parameters."""
    pairs: list[Pair] = []
    for one, other in names.items():
        first, second = _find(source, one, frameworks[0]), _find(target, other, frameworks[1])
        found = fit(first, second)
        if found is None:
            shapes = [[list(held.shape) for held in layer.params.values()] for layer in (first, second)]
            raise ConfigError(f"names has '{one}': '{other}', but {shapes[0]} does not become {shapes[1]}.")
        pairs += found
        source, target = (
            [each for layer in layers if (each := _without(layer, taken)) is not None]
            for layers, taken in ((source, first), (target, second))
        )
    return pairs, source, target


def _find(layers: Sequence[ParameterLayer], name: str, framework: str) -> ParameterLayer:
    """Returns a layer by its name, or one made of a single parameter."""
    choices: dict[str, ParameterLayer] = {}
    for layer in layers:
        choices[layer.name] = layer
        for role, held in layer.params.items():
            only = dataclasses.replace(layer, params={role: held}, buffers={})
            choices |= {held.native: only, held.neutral: only}
    if name not in choices:
        raise unknown(
            f"parameter of {framework}", name, filter(None, choices), "`names` of your samestep.Model mentions it."
        )
    return choices[name]


def _without(layer: ParameterLayer, taken: ParameterLayer) -> ParameterLayer | None:
    gone = {held.neutral for held in taken.params.values()}
    params = {role: held for role, held in layer.params.items() if held.neutral not in gone}
    return dataclasses.replace(layer, params=params) if params else None


def _by_name(source: list[ParameterLayer], target: list[ParameterLayer]) -> Matched:
    """Matches layers whose names are more alike than those of any others, among names that somebody chose."""

    def score(one: ParameterLayer, other: ParameterLayer) -> float:
        alike = likeness(one, other)
        return alike if alike and fit(one, other) else 0.0

    return _take_best(source, target, score)


def _by_shape(source: list[ParameterLayer], target: list[ParameterLayer]) -> Matched:
    """Matches two layers that fit each other and no other layer."""
    return _take_best(source, target, lambda one, other: float(fit(one, other) is not None))


def _take_best(source: list[ParameterLayer], target: list[ParameterLayer], score: Score) -> Matched:
    """Matches two layers if each scores higher with the other than with any third."""
    scores = np.array([[score(one, other) for other in target] for one in source]).reshape(len(source), len(target))
    chosen = {
        (i, j)
        for i, j in zip(*np.nonzero(scores), strict=True)
        if (scores[i] >= scores[i, j]).sum() == (scores[:, j] >= scores[i, j]).sum() == 1
    }
    return _take(source, target, chosen)


def _take(source: list[ParameterLayer], target: list[ParameterLayer], chosen: Collection[tuple[int, int]]) -> Matched:
    """Matches the layers at the chosen places; returns the pairs and the layers that are left."""
    pairs = [pair for i, j in sorted(chosen) for pair in fit(source[i], target[j]) or ()]
    left = [layer for i, layer in enumerate(source) if all(i != taken for taken, _ in chosen)]
    return pairs, left, [layer for j, layer in enumerate(target) if all(j != taken for _, taken in chosen)]


def _by_order(source: list[ParameterLayer], target: list[ParameterLayer]) -> Matched:
    """Matches the remaining layers in the order of execution, with the highest total score."""
    scores = [[_score(one, other) for other in target] for one in source]
    best = np.zeros((len(source) + 1, len(target) + 1))
    for i, j in itertools.product(range(len(source)), range(len(target))):
        kept = best[i, j] + scores[i][j] if scores[i][j] else 0.0
        best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], kept)
    chosen, i, j = [], len(source), len(target)
    while i and j:
        if scores[i - 1][j - 1] and best[i, j] == best[i - 1, j - 1] + scores[i - 1][j - 1]:
            i, j = i - 1, j - 1
            chosen.append((i, j))
        elif best[i, j] == best[i - 1, j]:
            i -= 1
        else:
            j -= 1
    return _take(source, target, chosen)


def _score(one: ParameterLayer, other: ParameterLayer) -> float:
    found = fit(one, other)
    if found is None:
        return 0.0
    taken = sum(len(pair.source) + len(pair.target) for pair in found if not pair.is_buffer)
    whole = taken == len(one.params) + len(other.params) and bool(one.buffers) == bool(other.buffers)
    return (_WHOLE if whole else _PARTIAL) + 0.1 * likeness(one, other)

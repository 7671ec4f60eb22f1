"""Which parameter of a torch model is which of a TensorFlow model: matched by shape, name and order of execution."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from samestep.common.errors import ConfigError, unknown
from samestep.common.workload.changes import CHANGES
from samestep.common.workload.models.layer import WEIGHT_ROLES, Held, Layer

KNOWN = ("Linear", "NonDynamicallyQuantizableLinear", "Dense", "EinsumDense")
"""Classes whose kernels have a layout that everybody knows."""
_REVERSED_SPACE = ("ConvTranspose2d", "ConvTranspose3d", "Conv3d")
_RECURRENT_KINDS = ("RNN", "LSTM", "GRU", "MultiheadAttention")
_SYNONYMS = {"q": "query", "k": "key", "v": "value", "embedding": "table", "embed": "table"}
_WHOLE, _PARTIAL = 2.0, 1.5
"""What a pair adds to an alignment: with all parameters on both sides, or with some on one side only."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """Parameters of torch, and those of TensorFlow that are made of them.

    Attributes:
        layers: The layer of torch and that of TensorFlow.
        torch: Torch's parameters.
        tf: TensorFlow's.
        change: A key of `CHANGES`.
        is_buffer: Whether it is a buffer.
    """

    layers: tuple[Layer, Layer]
    torch: tuple[Held, ...]
    tf: tuple[Held, ...]
    change: str
    is_buffer: bool = False

    @property
    def is_ambiguous(self) -> bool:
        """Whether the kernel fits both ways, and the classes of the layers do not say which."""
        shape = self.tf[0].shape
        square = len(shape) == 2 and shape[0] == shape[1] and self.change in ("same", "native", "flipped")
        is_kernel = not {"table", "scale"} & set(self.layers[0].params) & set(self.layers[1].params)
        return square and is_kernel and not all(_is_laid_out(layer) for layer in self.layers)

    @property
    def permutation(self) -> str:
        """How torch's array becomes TensorFlow's, in words."""
        change, axes = CHANGES[self.change], self.torch[0].permutation
        if self.change != "same":
            said = change.words.format(count=len(self.tf))
            is_turned = self.change in ("reshaped", "split", "packed", "gates") and axes == (1, 0)
            return f"transposed, {said}" if is_turned else said
        return "" if axes == tuple(range(len(axes))) else "transposed" if axes == (1, 0) else str(axes)

    def to_tf(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Makes TensorFlow's arrays by neutral name.

        Args:
            values: Torch's, by neutral name, in the neutral layout.
        """
        made = CHANGES[self.change].make([values[held.neutral] for held in self.torch], [h.shape for h in self.tf])
        return {held.neutral: array for held, array in zip(self.tf, made, strict=True)}


@dataclasses.dataclass(frozen=True)
class Matching:
    """The parameters of two implementations of one model, matched.

    Attributes:
        pairs: In torch's order of execution.
        only_torch: Parameters of matched layers that TensorFlow's layer lacks, with the two layers.
        only_tf: Likewise, of TensorFlow's.
    """

    pairs: tuple[Pair, ...]
    only_torch: tuple[tuple[Held, Layer, Layer], ...] = ()
    only_tf: tuple[tuple[Held, Layer, Layer], ...] = ()

    def to_tf(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Makes TensorFlow's arrays by neutral name, as far as torch's are given."""
        return {
            name: array
            for pair in self.pairs
            if all(held.neutral in values for held in pair.torch)
            for name, array in pair.to_tf(values).items()
        }

    @property
    def layers(self) -> tuple[tuple[Layer, Layer], ...]:
        """The layers that were matched, each pair once."""
        return tuple({(one.name, other.name): (one, other) for one, other in (p.layers for p in self.pairs)}.values())

    def flipped(self, pair: Pair) -> "Matching":
        """The same with one square kernel read the other way."""
        other = dataclasses.replace(pair, change="flipped" if pair.change == "native" else "native")
        return dataclasses.replace(self, pairs=tuple(other if each is pair else each for each in self.pairs))


def match(torch: Sequence[Layer], tf: Sequence[Layer], names: Mapping[str, str] | None = None) -> Matching:
    """Matches the layers of two implementations, and with them their parameters.

    Args:
        torch: Torch's layers in the order of execution.
        tf: TensorFlow's.
        names: What the user says: torch's layer or parameter -> TensorFlow's.

    Raises:
        ConfigError: A parameter is left over, or a name is none; the message lists both sides.
    """
    pairs, torch_left, tf_left = _take_named(list(torch), list(tf), names or {})
    for step in (_packed, _by_name, _by_order, _by_shape):
        found, torch_left, tf_left = step(torch_left, tf_left)
        pairs += found
    if torch_left or tf_left:
        raise ConfigError(_unmatched(torch_left, tf_left))
    place = {layer.name: number for number, layer in enumerate(torch)}
    pairs.sort(key=lambda pair: place.get(pair.layers[0].name, len(place)))
    return Matching(tuple(pairs), _lacking(pairs, 0), _lacking(pairs, 1))


def _unmatched(torch: Iterable[Layer], tf: Iterable[Layer]) -> str:
    sides = []
    for framework, layers in (("torch", torch), ("tf", tf)):
        left = [f"{held.native} {list(held.shape)}" for layer in layers for held in layer.params.values()]
        sides.append(f"{framework} has {', '.join(left) or 'none'}")
    return (
        f"parameters are left without a counterpart: {'; '.join(sides)}; say which is which with "
        f"`names={{'torch name': 'tf name'}}` in your samestep.Model."
    )


def _lacking(pairs: Sequence[Pair], side: int) -> tuple[tuple[Held, Layer, Layer], ...]:
    taken = {held.neutral for pair in pairs for held in (pair.torch, pair.tf)[side]}
    layers = {pair.layers[side].name: pair.layers for pair in pairs}
    lacking = [(held, *both) for both in layers.values() for held in both[side].params.values()]
    return tuple(each for each in lacking if each[0].neutral not in taken)


# --- the steps --------------------------------------------------------------------------------------------------------

Step = tuple[list[Pair], list[Layer], list[Layer]]
"""What was matched, and the layers that are left on each side."""


def _take_named(torch: list[Layer], tf: list[Layer], names: Mapping[str, str]) -> Step:
    """Takes what the user named: layers, or single parameters."""
    pairs: list[Pair] = []
    for one, other in names.items():
        first, second = _find(torch, one, "torch"), _find(tf, other, "tf")
        found = fit(first, second)
        if found is None:
            shapes = [[list(held.shape) for held in layer.params.values()] for layer in (first, second)]
            raise ConfigError(f"names has '{one}': '{other}', but {shapes[0]} does not become {shapes[1]}.")
        pairs += found
        torch, tf = (
            [each for layer in layers if (each := _without(layer, taken)) is not None]
            for layers, taken in ((torch, first), (tf, second))
        )
    return pairs, torch, tf


def _find(layers: Sequence[Layer], name: str, framework: str) -> Layer:
    """A layer by its name, or one made of a single parameter."""
    choices: dict[str, Layer] = {}
    for layer in layers:
        choices[layer.name] = layer
        for role, held in layer.params.items():
            only = dataclasses.replace(layer, name=held.native, params={role: held}, buffers={})
            choices |= {held.native: only, held.neutral: only}
    if name not in choices:
        raise unknown(f"parameter of {framework}", name, choices, "It stands in names of your samestep.Model.")
    return choices[name]


def _without(layer: Layer, taken: Layer) -> Layer | None:
    gone = {held.neutral for held in taken.params.values()}
    params = {role: held for role, held in layer.params.items() if held.neutral not in gone}
    return dataclasses.replace(layer, params=params) if params else None


def _packed(torch: list[Layer], tf: list[Layer]) -> Step:
    """Takes projections that one side holds in one kernel and the other in three in a row: query, key and value."""
    pairs: list[Pair] = []
    for sides, change in (((torch, tf), "split"), ((tf, torch), "packed")):
        one, other = sides
        for whole in list(one):
            kernel = whole.params.get("kernel")
            if kernel is None or len(kernel.shape) != 2 or any(_kernel_shape(e) == _kernel_shape(whole) for e in other):
                continue
            for parts in zip(other, other[1:], other[2:], strict=False):
                if _are_parts(whole, parts):
                    for role, held in whole.params.items():
                        three = tuple(part.params[role] for part in parts)
                        both = (whole, parts[0]) if change == "split" else (parts[0], whole)
                        ours, theirs = ((held,), three) if change == "split" else (three, (held,))
                        pairs.append(Pair(both, ours, theirs, change))
                    one.remove(whole)
                    for part in parts:
                        other.remove(part)
                    break
    return pairs, torch, tf


def _kernel_shape(layer: Layer) -> tuple[int, ...]:
    return layer.params["kernel"].neutral_shape if "kernel" in layer.params else ()


def _are_parts(whole: Layer, parts: Sequence[Layer]) -> bool:
    inputs, outputs = _kernel_shape(whole)
    wanted = {role: held.neutral_shape for role, held in whole.params.items()}
    return all(
        part.params.keys() == wanted.keys()
        and len(_kernel_shape(part)) > 1
        and _kernel_shape(part)[0] == inputs
        and all(3 * np.prod(held.shape) == np.prod(wanted[role]) for role, held in part.params.items())
        for part in parts
    )


def _by_name(torch: list[Layer], tf: list[Layer]) -> Step:
    """Takes layers whose names are more alike than any other's, where the names are somebody's choice."""
    alike = {
        (i, j): score
        for (i, one), (j, other) in itertools.product(enumerate(torch), enumerate(tf))
        if (score := _likeness(one, other)) and fit(one, other)
    }
    rows: dict[int, list[float]] = {}
    columns: dict[int, list[float]] = {}
    for (i, j), score in alike.items():
        rows.setdefault(i, []).append(score)
        columns.setdefault(j, []).append(score)
    best = {
        (i, j)
        for (i, j), score in alike.items()
        if sorted(rows[i])[-2:].count(score) == 1 == sorted(columns[j])[-2:].count(score)
        and score == max(rows[i]) == max(columns[j])
    }
    pairs = [pair for i, j in sorted(best) for pair in fit(torch[i], tf[j]) or ()]
    return pairs, _rest(torch, {i for i, _ in best}), _rest(tf, {j for _, j in best})


def _rest(layers: Sequence[Layer], taken: set[int]) -> list[Layer]:
    return [layer for number, layer in enumerate(layers) if number not in taken]


def _likeness(one: Layer, other: Layer) -> float:
    first, second = _words(one), _words(other)
    return len(first & second) / max(len(first | second), 1)


def _words(layer: Layer) -> set[str]:
    """The words of a layer's path that somebody chose; what Keras numbers itself says nothing."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", layer.kind).lower()
    automatic = rf"({snake}|dense|linear|conv\dd|layer_normalization|batch_normalization|embedding)(_\d+)?"
    parts = [part for part in re.split(r"[./]", layer.name) if not re.fullmatch(automatic, part)]
    text = re.sub(r"(?<=[a-z])(?=[A-Z])|[_/.]", " ", " ".join(parts)).lower()
    text = re.sub(r"([a-z]+?)s?\s*(\d+)", r"\1\2", text)
    return {_SYNONYMS.get(word, word) for word in text.split() if not word.isdigit()}


def _by_order(torch: list[Layer], tf: list[Layer]) -> Step:
    """Aligns what is left in the order of execution, with as many pairs as there can be."""
    scores = [[_score(one, other) for other in tf] for one in torch]
    best = np.zeros((len(torch) + 1, len(tf) + 1))
    for i, j in itertools.product(range(len(torch)), range(len(tf))):
        kept = best[i, j] + scores[i][j] if scores[i][j] else 0.0
        best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], kept)
    chosen, i, j = [], len(torch), len(tf)
    while i and j:
        if scores[i - 1][j - 1] and best[i, j] == best[i - 1, j - 1] + scores[i - 1][j - 1]:
            i, j = i - 1, j - 1
            chosen.append((i, j))
        elif best[i, j] == best[i - 1, j]:
            i -= 1
        else:
            j -= 1
    pairs = [pair for i, j in reversed(chosen) for pair in fit(torch[i], tf[j]) or ()]
    return pairs, _rest(torch, {i for i, _ in chosen}), _rest(tf, {j for _, j in chosen})


def _score(one: Layer, other: Layer) -> float:
    found = fit(one, other)
    if found is None:
        return 0.0
    taken = sum(len(pair.torch) + len(pair.tf) for pair in found if not pair.is_buffer)
    whole = taken == len(one.params) + len(other.params) and bool(one.buffers) == bool(other.buffers)
    return (_WHOLE if whole else _PARTIAL) + 0.1 * _likeness(one, other)


def _by_shape(torch: list[Layer], tf: list[Layer]) -> Step:
    """Takes layers that fit one layer of the other side and no other."""
    fits = {(i, j) for (i, a), (j, b) in itertools.product(enumerate(torch), enumerate(tf)) if fit(a, b)}
    sole = {
        (i, j)
        for i, j in fits
        if sum(i == other for other, _ in fits) == 1 and sum(j == other for _, other in fits) == 1
    }
    pairs = [pair for i, j in sorted(sole) for pair in fit(torch[i], tf[j]) or ()]
    return pairs, _rest(torch, {i for i, _ in sole}), _rest(tf, {j for _, j in sole})


# --- two layers -------------------------------------------------------------------------------------------------------


def fit(one: Layer, other: Layer) -> list[Pair] | None:
    """Pairs the parameters of two layers, or returns None if they cannot be the same layer.

    Args:
        one: Torch's.
        other: TensorFlow's.
    """
    if "recurrent" in one.params and "recurrent" in other.params:
        return list(_recurrent(one, other)) if _gates(one) == _gates(other) else None
    ours, theirs = _weights(one), _weights(other)
    if len(ours) == len(theirs) == 1 and {"value"} & {*ours, *theirs}:
        ours, theirs = {"value": next(iter(ours.values()))}, {"value": next(iter(theirs.values()))}
    if ours.keys() != theirs.keys():
        return None
    pairs = []
    for role, held in (ours | {"bias": one.params.get("bias")}).items():
        target = theirs.get(role, other.params.get(role))
        if held is None or target is None:
            continue
        if (change := _change(one, other, role, held, target)) is None:
            return None
        pairs.append(Pair((one, other), (held,), (target,), change))
    for role in one.buffers.keys() & other.buffers.keys():
        pairs.append(Pair((one, other), (one.buffers[role],), (other.buffers[role],), "same", is_buffer=True))
    return pairs or None


def _weights(layer: Layer) -> dict[str, Held]:
    weights = {role: held for role, held in layer.params.items() if role in WEIGHT_ROLES}
    return weights or layer.params


def _gates(layer: Layer) -> tuple[tuple[int, ...], ...]:
    return tuple(layer.params[role].neutral_shape for role in ("kernel", "recurrent"))


def _change(one: Layer, other: Layer, role: str, held: Held, target: Held) -> str | None:
    """How one parameter becomes the other; None if it cannot."""
    shape, native = held.neutral_shape, tuple(reversed(held.neutral_shape))
    is_kernel = len(shape) > 1 and role in ("value", "kernel")
    if is_kernel and not _is_laid_out(one) and target.shape == native:
        return "native"
    if one.kind in _REVERSED_SPACE and target.shape == _reversed_space(shape):
        return "space"
    if target.shape == shape:
        return "flipped" if is_kernel and not _is_laid_out(one) else "same"
    if is_kernel and not _is_laid_out(other) and target.shape == native:
        return "native"
    is_split = one.kind in KNOWN or other.kind in KNOWN or "Depthwise" in other.kind or role == "bias"
    if is_split and np.prod(target.shape) == np.prod(shape) and _keeps_an_end(shape, target.shape):
        return "reshaped"
    return None


def _is_laid_out(layer: Layer) -> bool:
    return layer.kind in KNOWN or layer.kind.startswith(("Conv", "Depthwise")) or layer.kind in _RECURRENT_KINDS


def _reversed_space(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*reversed(shape[:-2]), *shape[-2:])


def _keeps_an_end(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether a reshape splits or joins axes at one end only, as heads do, and as depthwise filters."""
    return len(shape) == 1 or shape[0] == target[0] or shape[-1] == target[-1]


def _recurrent(one: Layer, other: Layer) -> Iterator[Pair]:
    """Pairs the parameters of an LSTM, a GRU or a plain recurrent layer."""
    is_gru = one.kind == "GRU" and "GRU" in other.kind
    for role in ("kernel", "recurrent"):
        yield Pair((one, other), (one.params[role],), (other.params[role],), "gates" if is_gru else "same")
    biases = tuple(one.params[role] for role in ("bias", "second_bias") if role in one.params)
    if not biases or "bias" not in other.params:
        return
    target = other.params["bias"]
    if len(biases) == 2:
        yield Pair((one, other), biases, (target,), "stacked" if len(target.shape) == 2 else "summed")
    else:
        yield Pair((one, other), biases, (target,), "gates" if is_gru else "same")

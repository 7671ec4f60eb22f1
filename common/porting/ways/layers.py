"""The known ways to compute a layer, family by family; their settings are what ports get wrong."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.ways import formulas
from samestep.common.porting.ways.fitted_activations import measured
from samestep.common.porting.ways.identify import Candidate, Way, biases, each_way
from samestep.common.porting.ways.recurrent import recurrent
from samestep.common.porting.ways.resizing import resizing
from samestep.common.porting.ways.space import convolution, flattened, pooling

Params = Mapping[str, np.ndarray]
_AXES = {"the keys": -1, "the queries": -2, "the heads": -3}
"""The name of what a softmax is taken over -> the axis in [batch, heads, queries, keys]; the first one is usual."""
EPSILONS = (1e-5, 1e-3, 1e-6, 1e-12, 1e-7, 1e-8, 0.0)
"""The values of epsilon in use, besides the two that the layers say they have."""


def linear(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Yields the product with a kernel, transposed or not, with or without its bias and an activation.

    Args:
        x: [..., inputs].
        params: kernel and bias.
        layer: The layer.
    """
    held, added = params["kernel"], biases(params)
    held = held.reshape(x.shape[-1], -1) if held.size % x.shape[-1] == 0 else held
    kernels = {"as it is": held} | ({"transposed": held.T} if held.shape[0] == held.shape[-1] else {})

    def make(kernel: str, bias: bool, activation: str) -> np.ndarray:
        return formulas.ACTIVATIONS[activation](x @ kernels[kernel] + np.ravel(added[bias]))

    yield from each_way(make, kernel=kernels, bias=added, activation=formulas.ACTIVATIONS)


def normalization(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Yields normalizations with each epsilon and the statistics of the batch, the example, groups of channels, or running ones.

    Args:
        x: [batch, ..., channels].
        params: scale and bias.
        layer: The layer.
    """
    own = [call.settings.get(name) for call in (layer.source, layer.target) for name in ("eps", "epsilon")]
    epsilons = dict.fromkeys([*(float(e) for e in own if isinstance(e, int | float)), *EPSILONS])
    held = {name: _beside(x, value) for name, value in {**params, **layer.params[1]}.items()}
    known, scale, added = _statistics(x, layer), held.get("scale", 1.0), biases(held)

    def make(statistics: str, epsilon: float, bias: bool) -> np.ndarray:
        mean, variance = known[statistics]
        return (x - mean) / np.sqrt(variance + epsilon) * scale + added[bias]

    yield from each_way(make, statistics=known, epsilon=epsilons, bias=added)


def _beside(x: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Returns a scale or bias that broadcasts over an array; that of a norm over space alone is the same for all channels."""
    return value[..., None] if value.shape == x.shape[1:-1] != x.shape[-1:] else value


def _statistics(x: np.ndarray, layer: Aligned) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    batch, inner, space = tuple(range(x.ndim - 1)), tuple(range(1, x.ndim)), tuple(range(1, x.ndim - 1))
    found = {
        "the last axis": (x.mean(-1, keepdims=True), x.var(-1, keepdims=True)),
        "the batch": (x.mean(batch), x.var(batch)),
        "each example": (x.mean(inner, keepdims=True), x.var(inner, keepdims=True)),
        "the variance alone": (np.zeros_like(x[..., :1]), x.var(-1, keepdims=True)),
        "the root mean square": (np.zeros_like(x[..., :1]), np.square(x).mean(-1, keepdims=True)),
    }
    if space:
        found["each channel of an example"] = (x.mean(space, keepdims=True), x.var(space, keepdims=True))
    buffers = layer.buffers[0]
    if "running_mean" in buffers:
        found["the running statistics"] = (buffers["running_mean"], buffers["running_var"])
    for groups in {
        call.settings.get(name) for call in (layer.source, layer.target) for name in ("num_groups", "groups")
    }:
        if isinstance(groups, int) and x.shape[-1] % groups == 0:
            parts = x.reshape(len(x), -1, groups, x.shape[-1] // groups)
            shape = (len(x), *(1,) * (x.ndim - 2), x.shape[-1])
            mean, variance = (f(parts, axis=(1, 3)).repeat(x.shape[-1] // groups, axis=1) for f in (np.mean, np.var))
            found[f"{groups} groups"] = (mean.reshape(shape), variance.reshape(shape))
    return found


def activation(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Yields each activation.

    Args:
        x: The inputs.
        params: Not used.
        layer: The layer.
    """
    known = dict(formulas.ACTIVATIONS)
    for seen in layer.output:
        known |= dict(measured(x, seen))
    yield from each_way(lambda activation: known[activation](x), activation=known)


def embedding(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Yields the rows of a table, as they are or scaled by the square root of their width.

    Args:
        x: The ids.
        params: table.
        layer: The layer.
    """
    table = params["table"]
    root = math.sqrt(table.shape[-1])
    yield from each_way(lambda factor: table[x.astype(np.int64)] * factor, factor=(1.0, root, 1 / root))


def attention(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Yields self-attention from packed projections, under each scale and mask.

    Args:
        x: [batch, time, width].
        params: Torch's: kernel and bias of the packed projection, and of out_proj.
        layer: The layer.
    """
    stated = [call.settings.get("num_heads") for call in (layer.source, layer.target)]
    heads = [count for count in dict.fromkeys(stated) if isinstance(count, int)]
    if not {"kernel", "out_proj/kernel"} <= params.keys():  # it has one kernel for each projection
        return
    packed = x @ params["kernel"] + params.get("bias", 0.0)
    query, key, value = np.split(packed, 3, axis=-1)

    def projected(made: np.ndarray) -> np.ndarray:
        return made @ params["out_proj/kernel"] + params.get("out_proj/bias", 0.0)

    for settings, make in attended(query, key, value, heads):
        yield {**settings, "hidden": "no keys"}, lambda make=make: projected(make())
    for count in heads if x.shape[1] <= MOST_HIDDEN else ():
        split = [each.reshape(*each.shape[:2], count, -1) for each in (query, key, value)]
        scale, usual = f"1/sqrt({split[0].shape[-1]})", {"ahead": None, "softmax": "the keys", "back": True}
        for seen, (where, (parts, of_queries)) in itertools.product(layer.output, _HIDDEN.items()):
            settings = {"heads": count, "scale": scale, **usual, "hidden": where}
            yield settings, functools.partial(_nearest, split, parts, projected, seen, of_queries)


def _nearest(
    split: Sequence[np.ndarray],
    parts: Callable[[int], slice],
    projected: Callable[[np.ndarray], np.ndarray],
    seen: np.ndarray,
    of_queries: bool,
) -> np.ndarray:
    """Returns attention under the padding mask that comes nearest to what was seen, chosen for each example or query.

    Args:
        split: Queries, keys and values, [batch, time, heads, size].
        parts: The number of hidden keys -> the slice of the visible ones.
        projected: Projects the concatenated heads to the output.
        seen: The output.
        of_queries: Whether the queries of one example may have different masks.
    """
    query, key, value = split

    def output(keys: slice, factor: float) -> np.ndarray:
        heads = formulas.attend(query, key[:, keys], value[:, keys], factor, None)
        return projected(heads.reshape(*heads.shape[:2], -1))

    made = [output(keys, query.shape[-1] ** -0.5) for keys in map(parts, range(key.shape[1]))]
    made.append(output(slice(None), 0.0))  # if all keys are hidden, Keras weighs them equally
    found = np.stack(made)
    best = np.abs(found - seen).max(axis=3 if of_queries else (2, 3), keepdims=True).argmin(axis=0)
    return np.take_along_axis(found, best[None], axis=0)[0]


def attended(query: np.ndarray, key: np.ndarray, value: np.ndarray, heads: Sequence[int]) -> Iterator[Candidate]:
    """Yields attention of projections [batch, time, width], under each number of heads, scale, mask and softmax axis.

    The heads are concatenated, or wrongly left untransposed.

    Args:
        query: The queries.
        key: The keys.
        value: The values.
        heads: The numbers of heads to try.
    """
    for count in heads:
        yield from _attended(query, key, value, count)


def _attended(query: np.ndarray, key: np.ndarray, value: np.ndarray, count: int) -> Iterator[Candidate]:
    """Yields attention with this many heads; with other softmax axes or untransposed heads, only under the first scale."""
    width, size = query.shape[-1], query.shape[-1] // count
    q, k, v = (each.reshape(*each.shape[:2], count, -1) for each in (query, key, value))
    scales = {f"1/sqrt({size})": size**-0.5, f"1/sqrt({width})": width**-0.5, "1": 1.0, f"1/{size}": 1 / size}

    def make(heads: int, scale: str, ahead: int | None, softmax: str, back: bool) -> np.ndarray:
        made = formulas.attend(q, k, v, scales[scale], ahead, _AXES[softmax])
        return (made if back else made.swapaxes(1, 2)).reshape(*made.shape[:2], width)

    yield from each_way(make, heads=[count], scale=scales, ahead=(None, 0, 1, -1), softmax=[*_AXES][:1], back=[True])
    yield from each_way(make, heads=[count], scale=[*scales][:1], ahead=(None, 0), softmax=_AXES, back=(True, False))


MOST_HIDDEN = 64
"""The most positions of an attention for which every padding mask is tried."""
_HIDDEN: Mapping[str, tuple[Callable[[int], slice], bool]] = {
    "the last keys of some examples": (lambda count: slice(0, -count or None), False),
    "the first keys of some examples": (lambda count: slice(count, None), False),
    "all keys of some queries": (lambda count: slice(None), True),
    "the last keys of some examples and all keys of some queries": (lambda count: slice(0, -count or None), True),
}
"""What a mask hides -> a function from the number of hidden keys to the visible ones, and whether queries have their own
masks."""


WAYS: Mapping[str, Way] = {
    "linear": linear,
    "convolution": convolution,
    "pooling": pooling,
    "normalization": normalization,
    "activation": activation,
    "embedding": embedding,
    "attention": attention,
    "recurrent": recurrent,
    "flatten": lambda x, params, layer: flattened(x, layer.output[1]),
    "resizing": resizing,
}
"""The ways to compute a layer, by family."""

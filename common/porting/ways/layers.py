"""The known ways to compute a layer, family by family: what ports get wrong are the settings of these."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.ways import formulas
from samestep.common.porting.ways.activations import measured
from samestep.common.porting.ways.identify import Candidate, Way
from samestep.common.porting.ways.recurrent import recurrent
from samestep.common.porting.ways.resizing import resizing
from samestep.common.porting.ways.space import convolution, flatten, pooling

Params = Mapping[str, np.ndarray]
_AXES = {-1: "the keys", -2: "the queries", -3: "the heads"}
EPSILONS = (1e-5, 1e-3, 1e-6, 1e-12, 1e-7, 1e-8, 0.0)
"""Those in use, beside the two that the layers say they have."""


def linear(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Yields a kernel with or without its bias, either way round, with or without an activation.

    Args:
        x: [..., inputs].
        params: kernel and bias.
        layer: The layer.
    """
    kernel = params["kernel"]
    kernel = kernel.reshape(x.shape[-1], -1) if kernel.size % x.shape[-1] == 0 else kernel
    for is_turned, has_bias, activation in itertools.product((False, True), (True, False), formulas.ACTIVATIONS):
        if (has_bias and "bias" not in params) or (is_turned and kernel.shape[0] != kernel.shape[-1]):
            continue
        settings = {"kernel": "transposed" if is_turned else "as it is", "bias": has_bias, "activation": activation}

        def make(turned: bool = is_turned, biased: bool = has_bias, name: str = activation) -> np.ndarray:
            y = x @ (kernel.T if turned else kernel) + (params["bias"].reshape(-1) if biased else 0.0)
            return formulas.ACTIVATIONS[name](y)

        yield settings, make


def normalisation(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Each epsilon, with the statistics of the batch, of the example, of groups of channels, or the running ones.

    Args:
        x: [batch, ..., channels].
        params: scale and bias.
        layer: The layer.
    """
    own = [call.settings.get(name) for call in (layer.source, layer.target) for name in ("eps", "epsilon")]
    epsilons = dict.fromkeys([*(float(e) for e in own if isinstance(e, int | float)), *EPSILONS])
    for what, (mean, variance) in _statistics(x, layer).items():
        for epsilon, has_bias in itertools.product(epsilons, (True, False)):
            if has_bias and "bias" not in params:
                continue
            settings = {"statistics": what, "epsilon": epsilon, "bias": has_bias}

            def make(
                mean: np.ndarray = mean,
                variance: np.ndarray = variance,
                epsilon: float = epsilon,
                biased: bool = has_bias,
            ) -> np.ndarray:
                scale, bias = params.get("scale", 1.0), params["bias"] if biased else 0.0
                return (x - mean) / np.sqrt(variance + epsilon) * scale + bias

            yield settings, make


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
    """Each activation.

    Args:
        x: The inputs.
        params: None.
        layer: The layer.
    """
    known = dict(formulas.ACTIVATIONS)
    for seen in layer.output:
        known |= dict(measured(x, seen))
    for name, function in known.items():
        yield {"activation": name}, lambda function=function: function(x)


def embedding(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Yields the rows of a table, as they are or scaled by the square root of their width.

    Args:
        x: Ids.
        params: table.
        layer: The layer.
    """
    table = params["table"]
    for factor in (1.0, math.sqrt(table.shape[-1]), 1 / math.sqrt(table.shape[-1])):
        yield {"factor": factor}, lambda factor=factor: table[x.astype(np.int64)] * factor


def attention(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Self-attention from packed projections, under each scale and mask.

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
        scale, usual = f"1/sqrt({split[0].shape[-1]})", {"ahead": None, "softmax": _AXES[-1], "back": True}
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
    """Returns attention under the mask that comes nearest to what was seen, a number of keys for each example or query.

    Args:
        split: Queries, keys and values, [batch, time, heads, size].
        parts: (how many keys are hidden) -> those that are not.
        projected: Makes the output of the heads, side by side.
        seen: The output.
        of_queries: Whether the queries of one example may have different masks.
    """
    query, key, value = split

    def output(keys: slice, factor: float) -> np.ndarray:
        heads = formulas.attend(query, key[:, keys], value[:, keys], factor, None)
        return projected(heads.reshape(*heads.shape[:2], -1))

    made = [output(keys, query.shape[-1] ** -0.5) for keys in map(parts, range(key.shape[1]))]
    made.append(output(slice(None), 0.0))  # where all are hidden, Keras weighs all alike
    found = np.stack(made)
    best = np.abs(found - seen).max(axis=3 if of_queries else (2, 3), keepdims=True).argmin(axis=0)
    return np.take_along_axis(found, best[None], axis=0)[0]


def attended(query: np.ndarray, key: np.ndarray, value: np.ndarray, heads: Sequence[int]) -> Iterator[Candidate]:
    """Attention of projections [batch, time, width], under each number of heads, scale, mask and axis of the softmax.

    Its heads are put side by side, or left as if they had been.

    Args:
        query: The queries.
        key: The keys.
        value: The values.
        heads: The numbers of heads to try.
    """
    width = query.shape[-1]
    for count in heads:
        size = width // count
        split = [each.reshape(*each.shape[:2], count, -1) for each in (query, key, value)]
        scales = {f"1/sqrt({size})": size**-0.5, f"1/sqrt({width})": width**-0.5, "1": 1.0, f"1/{size}": 1 / size}
        usual = [(scale, ahead, -1, True) for scale, ahead in itertools.product(scales, (None, 0, 1, -1))]
        odd = itertools.product(list(scales)[:1], (None, 0), (-1, -2, -3), (True, False))
        for scale, ahead, axis, is_back in [*usual, *(each for each in odd if each not in usual)]:
            settings = {"heads": count, "scale": scale, "ahead": ahead, "softmax": _AXES[axis], "back": is_back}

            def make(
                factor: float = scales[scale],
                ahead: int | None = ahead,
                split: list[np.ndarray] = split,
                axis: int = axis,
                is_back: bool = is_back,
            ) -> np.ndarray:
                made = formulas.attend(*split, factor, ahead, axis)
                whole = (*made.shape[:2], width)
                return (made if is_back else made.swapaxes(1, 2)).reshape(whole)

            yield settings, make


MOST_HIDDEN = 64
"""The positions of an attention of which every padding mask is tried."""
_HIDDEN: Mapping[str, tuple[Callable[[int], slice], bool]] = {
    "the last keys of some examples": (lambda count: slice(0, -count or None), False),
    "the first keys of some examples": (lambda count: slice(count, None), False),
    "all keys of some queries": (lambda count: slice(None), True),
    "the last keys of some examples and all keys of some queries": (lambda count: slice(0, -count or None), True),
}
"""What a mask hides -> how many keys are hidden -> those that are not; and whether queries have masks of their own."""


WAYS: Mapping[str, Way] = {
    "linear": linear,
    "convolution": convolution,
    "pooling": pooling,
    "normalisation": normalisation,
    "activation": activation,
    "embedding": embedding,
    "attention": attention,
    "recurrent": recurrent,
    "flatten": flatten,
    "resizing": resizing,
}
"""By family."""

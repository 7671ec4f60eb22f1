"""The known ways to compute layers with spatial dims: convolutions, pooling, and flattening."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.ways import formulas
from samestep.common.porting.ways.identify import Candidate, biases, each_way

Params = Mapping[str, np.ndarray]
_MOST_PAD = 4
_FILLS = {
    "maximum": (-np.inf, np.max),
    "maximum with zeros as padding": (0.0, np.max),
    "mean": (np.nan, np.nanmean),
    "mean with the padding": (0.0, np.mean),
}
"""How a window is pooled -> what it is padded with, and the function."""

_ZEROS = "zeros"
_BORDERS = {_ZEROS: "constant", "a reflection": "reflect", "the nearest pixel": "edge", "the other side": "wrap"}
"""What surrounds an image -> NumPy's name for it."""


def _numbers(value: object, count: int) -> tuple[int, ...]:
    """Returns a setting for each spatial dim; a single number applies to all of them."""
    if isinstance(value, int):
        return (value,) * count
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (1,) * count


def _either(layer: Aligned, names: Sequence[str], count: int, default: int = 1) -> list[tuple[int, ...]]:
    """Returns the values of a setting on both sides, torch's first, without repetitions."""
    found = [
        _numbers(call.settings[name], count)
        for call in (layer.source, layer.target)
        for name in names
        if call.settings.get(name) is not None and not isinstance(call.settings[name], str)
    ]
    return list(dict.fromkeys(found)) or [(default,) * count]


def convolution(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Yields a filter under each padding that the two sides may have meant, with or without its bias.

    Args:
        x: [batch, *space, channels].
        params: kernel and bias.
        layer: The layer.
    """
    if "Transpose" in layer.target.kind:
        yield from _transposed(x, layer)
        return
    if "depthwise/kernel" in params:
        yield from _separable(x, params, layer)
        return
    for settings, make in _convolved(x, params["kernel"], layer):
        for has_bias, bias in biases(params).items():
            yield {**settings, "bias": has_bias}, lambda make=make, bias=bias: make() + bias


def _convolved(x: np.ndarray, kernel: np.ndarray, layer: Aligned) -> Iterator[Candidate]:
    """Yields a filter under each padding, stride and dilation."""
    count = kernel.ndim - 2
    groups = x.shape[-1] // kernel.shape[-2]
    strides = _either(layer, ("stride", "strides"), count)
    dilations = _either(layer, ("dilation", "dilation_rate"), count)
    for step, spread in itertools.product(strides, dilations):
        reach = [(n - 1) * d + 1 for n, d in zip(kernel.shape, spread, strict=False)]
        same = formulas.same_pads(x.shape[1:-1], reach, step)
        padded = [[(p, p) for p in each] for each in _either(layer, ("padding",), count, 0)]
        padded += [[(p, p)] * count for p in range(1, _MOST_PAD)]
        uneven = ([(f(p), sum(p) - f(p)) for p in same] for f in (max, sum))
        pads = [tuple(each) for each in (*padded, same, [(0, 0)] * count, *uneven)]
        make = functools.partial(_padded, x, kernel, groups)
        each = functools.partial(each_way, make, stride=[step], dilation=[spread])
        yield from each(border=[_ZEROS], padding=pads)
        yield from each(border=[*_BORDERS][1:], padding=[some for some in pads if any(map(any, some))])


def _padded(
    x: np.ndarray,
    kernel: np.ndarray,
    groups: int,
    *,
    padding: formulas.Pads,
    border: str,
    stride: Sequence[int],
    dilation: Sequence[int],
) -> np.ndarray:
    around = np.pad(x, [(0, 0), *padding, (0, 0)], mode=_BORDERS[border])  # type: ignore[call-overload]
    return formulas.convolve(around, kernel, stride, [(0, 0)] * len(padding), dilation, groups)


def _separable(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Yields a depthwise filter followed by a pointwise one, with each activation in between."""
    first, second = params["depthwise/kernel"], params["kernel"]
    alone = first.reshape(*first.shape[:-2], 1, -1)
    inner = [(settings, functools.cache(make)) for settings, make in _convolved(x, alone, layer)]
    for (name, function), (settings, make) in itertools.product(formulas.ACTIVATIONS.items(), inner):
        for has_bias, bias in biases(params).items():
            said = {**settings, "inner activation": name, "bias": has_bias}
            yield said, lambda make=make, f=function, b=bias: f(make()) @ second.reshape(second.shape[-2:]) + b


def _transposed(x: np.ndarray, layer: Aligned) -> Iterator[Candidate]:
    """Yields transposed convolutions, with each amount cropped in front and the rest behind."""
    kernel, bias = layer.params[1]["kernel"], layer.params[1].get("bias", 0.0)
    count = kernel.ndim - 2
    for step in _either(layer, ("stride", "strides"), count):
        whole = _spread(x, kernel, step)
        for size in {each.shape[1:-1] for each in layer.output}:
            for cut in itertools.product(range(max(kernel.shape[:-2])), repeat=count):
                settings = {"cut": cut if len(set(cut)) > 1 else cut[0], "stride": step, "kept": size}
                yield settings, lambda whole=whole, cut=cut, size=size: _cut(whole, cut, size) + bias


def _cut(whole: np.ndarray, cut: Sequence[int], size: Sequence[int]) -> np.ndarray:
    """Crops an array in front, and behind to a size; zeros are added behind if too little is left."""
    more = [(0, max(low + n - have, 0)) for low, n, have in zip(cut, size, whole.shape[1:], strict=False)]
    padded = formulas.pad(whole, more)
    return padded[(slice(None), *(slice(low, low + n) for low, n in zip(cut, size, strict=True)))]


def _spread(x: np.ndarray, kernel: np.ndarray, strides: Sequence[int]) -> np.ndarray:
    """Adds up the filters, each multiplied by a pixel and placed at that pixel's position times the stride."""
    size = [(n - 1) * s + k for n, s, k in zip(x.shape[1:-1], strides, kernel.shape, strict=False)]
    whole = np.zeros((len(x), *size, kernel.shape[-2]))
    for at in itertools.product(*map(range, kernel.shape[:-2])):
        places = tuple(slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(at, x.shape[1:-1], strides, strict=True))
        whole[(slice(None), *places)] += x @ kernel[at].T
    return whole


def pooling(x: np.ndarray, params: Params, layer: Aligned) -> Iterator[Candidate]:
    """Yields maxima or means of windows, or of the whole image, with the number of windows rounded down or up, padded or not.

    Args:
        x: [batch, *space, channels].
        params: Not used.
        layer: The layer.
    """
    space, count = x.shape[1:-1], x.ndim - 2
    sizes = _either(layer, ("kernel_size", "pool_size"), count, 0)
    for size in [each for each in sizes if all(each)] or [space]:
        for step in dict.fromkeys([*_either(layer, ("stride", "strides"), count, size[0]), size]):
            pads = [[(p, p) for p in each] for each in _either(layer, ("padding",), count, 0)]
            up = [(0, max(-(-(n - k) // s) * s + k - n, 0)) for n, k, s in zip(space, size, step, strict=True)]
            pads = [[(0, 0)] * count, *pads, up, formulas.same_pads(space, size, step)]
            for each, how in itertools.product(pads, _FILLS):
                number = [(n + sum(p) - k) // s for n, p, k, s in zip(space, each, size, step, strict=True)]
                even = [(n - k) // s for n, k, s in zip(space, size, step, strict=True)]
                rounding = "down" if number == even else "up"
                settings = {"window": size, "stride": step, "rounding": rounding, "padding": tuple(each), "pools": how}

                is_flat = layer.output[1].ndim == 2
                yield settings, functools.partial(_pool, x, how, each, size, step, is_flat)


def _pool(
    x: np.ndarray, how: str, pads: formulas.Pads, size: Sequence[int], step: Sequence[int], is_flat: bool
) -> np.ndarray:
    fill, function = _FILLS[how]
    cut = formulas.windows(formulas.pad(x, pads, fill), size, step, (1,) * len(size))
    made = function(cut, axis=tuple(range(-len(size), 0)))
    return made.reshape(len(x), -1) if is_flat else made


def flattened(x: np.ndarray, target: np.ndarray) -> Iterator[Candidate]:
    """Yields each order of the elements of an example, after each activation.

    Args:
        x: [batch, *space, channels].
        target: The expected result, of which only the shape is used.
    """
    if target.ndim != 2 or x.ndim < 3 or x.size != target.size:
        return
    names = {3: ["time"], 4: ["height", "width"]}.get(x.ndim, ["space"])
    orders = {("channels", *names): np.moveaxis(x, -1, 1), (*names, "channels"): x}
    flat = {f"in the order {', '.join(order)}": each.reshape(len(each), -1) for order, each in orders.items()}
    activated = lambda activation, order: formulas.ACTIVATIONS[activation](flat[order])  # noqa: E731
    yield from each_way(activated, activation=formulas.ACTIVATIONS, order=flat)

"""The known ways to make an image larger or smaller."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.ways.identify import Candidate, each_way

_Places = Callable[[np.ndarray, int, int], np.ndarray]
"""(places of the result, size before, size after) -> the places that they are taken from."""
_BY_CORNERS = "with aligned corners"
_PLACES: Mapping[str, _Places] = {
    "by half pixels": lambda at, old, new: (at + 0.5) * old / new - 0.5,
    _BY_CORNERS: lambda at, old, new: at * (old - 1) / max(new - 1, 1),
    "from the left edge": lambda at, old, new: at * old / new,
}


def resizing(x: np.ndarray, params: Mapping[str, np.ndarray], layer: Aligned) -> Iterator[Candidate]:
    """Yields nearest-pixel, linear and cubic interpolation, for each convention of the places of pixels.

    Args:
        x: [batch, *space, channels].
        params: Not used.
        layer: The layer.
    """
    for size in {each.shape[1:-1] for each in layer.output}:
        yield from each_way(functools.partial(_resized, x, size), resizes=_KERNELS, pixels=_PLACES)


def _resized(x: np.ndarray, size: Sequence[int], resizes: str, pixels: str) -> np.ndarray:
    for axis, new in enumerate(size, 1):
        weights = _weights(x.shape[axis], new, _KERNELS[resizes], _PLACES[pixels])
        x = np.moveaxis(np.tensordot(weights, x, axes=(1, axis)), 0, axis)
    return x


def _weights(old: int, new: int, weigh: Callable[[np.ndarray], np.ndarray], place: _Places) -> np.ndarray:
    """Returns the weight of each old pixel in each new one; outside the image, the pixel at the border is repeated."""
    places = place(np.arange(new, dtype=float), old, new)
    around = np.floor(places)[:, None] + np.arange(-1, 3)
    shares = weigh(around - places[:, None])
    weights = np.zeros((new, old))
    for row in range(new):
        np.add.at(weights[row], np.clip(around[row], 0, old - 1).astype(int), shares[row])
    return weights


def _nearest(distance: np.ndarray) -> np.ndarray:
    return ((distance > -0.5) & (distance <= 0.5)).astype(float)


def _cubic(sharpness: float) -> Callable[[np.ndarray], np.ndarray]:
    def weigh(distance: np.ndarray) -> np.ndarray:
        d, a = np.abs(distance), sharpness
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        return np.where(d <= 1, near, np.where(d < 2, a * (d**3 - 5 * d**2 + 8 * d - 4), 0.0))

    return weigh


_KERNELS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "to the nearest pixel": _nearest,
    "by linear interpolation": lambda distance: np.maximum(1 - np.abs(distance), 0.0),
    "by cubic interpolation (-0.75)": _cubic(-0.75),
    "by cubic interpolation (-0.5)": _cubic(-0.5),
}

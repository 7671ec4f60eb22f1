"""Converts neutral names and layouts to and from those usual in files of weights, such as `output.weight`, outputs first."""

import numpy as np

from samestep.common.workload.optimizers.table import OPTIMIZERS, optimizer_named

_USUAL = {"kernel": "weight", "table": "weight", "scale": "weight"}
_USUAL_SLOTS = {slot: key for name in OPTIMIZERS for slot, key in optimizer_named(name).keys.items()}
_SAME_LAYOUT = ("table", "scale", "bias")
_CONVOLUTION = (3, 2, 0, 1)
"""[height, width, in, out] -> [out, in, height, width]."""


def usual_name(name: str) -> str:
    """Returns the usual name of a parameter; the names of a user's own layers are kept."""
    path, _, leaf = name.rpartition("/")
    return ".".join(filter(None, (*path.split("/"), _USUAL.get(leaf, leaf))))


def usual_slot(slot: str) -> str:
    """Returns the usual name of a kind of optimizer state; the name that a user's own optimizer gives it is kept."""
    return _USUAL_SLOTS.get(slot, slot)


def neutral_slot(usual: str) -> str | None:
    """Returns the neutral name of a kind of optimizer state; None if it has none."""
    return next((slot for slot, name in _USUAL_SLOTS.items() if name == usual), None)


def to_usual(name: str, array: np.ndarray) -> np.ndarray:
    """Converts a parameter, or an array of its shape, to the usual layout.

    Args:
        name: The neutral name of the parameter.
        array: The array in the neutral layout.
    """
    return array.transpose(_permutation(name, array.ndim))


def from_usual(name: str, array: np.ndarray) -> np.ndarray:
    """Inverts `to_usual`.

    Args:
        name: The neutral name of the parameter.
        array: The array in the usual layout.
    """
    return array.transpose(np.argsort(_permutation(name, array.ndim)))


def _permutation(name: str, num_dims: int) -> tuple[int, ...]:
    leaf = name.rpartition("/")[2]
    if leaf in _SAME_LAYOUT:
        return tuple(range(num_dims))
    return _CONVOLUTION if leaf == "kernel" and num_dims == len(_CONVOLUTION) else tuple(reversed(range(num_dims)))

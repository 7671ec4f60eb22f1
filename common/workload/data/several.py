"""Combines several input arrays into one, whose records hold an example's part of each array.

So code that splits, shuffles or gathers examples needs no special case. Only a mirror separates the arrays again.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

Taken = TypeVar("Taken")


def together(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Combines several arrays into one, whose records hold an example's part of each array.

    Args:
        arrays: Each [examples, ...], by name.

    Returns:
        [examples], of a structured dtype.
    """
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) != 1:
        raise ValueError(f"the arrays {', '.join(arrays)} hold different numbers of examples")
    whole = np.empty(lengths.pop(), [(name, array.dtype, array.shape[1:]) for name, array in arrays.items()])
    for name, array in arrays.items():
        whole[name] = array
    return whole


def apart(array: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the combined arrays by name; a single array has the name ""."""
    names = array.dtype.names
    return {"": array} if names is None else {name: np.ascontiguousarray(array[name]) for name in names}


def each(array: np.ndarray, take: Callable[[np.ndarray], Taken]) -> Taken | dict[str, Taken]:
    """Applies a function to an array, or to each of several combined ones, whose results are returned by name.

    Args:
        array: An array of a data set.
        take: The function, which gets plain arrays.
    """
    if array.dtype.names is None:
        return take(array)
    return {name: take(one) for name, one in apart(array).items()}

"""Inputs of several arrays: they are passed as one array, whose records hold an example's part of each.

So code that cuts, shuffles or gathers examples does not need to know about them. Only a mirror takes them apart again.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

Taken = TypeVar("Taken")


def together(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Makes one array of several; its records hold an example's part of each.

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
    """Returns the several arrays by name; a single one has the name ""."""
    names = array.dtype.names
    return {"": array} if names is None else {name: np.ascontiguousarray(array[name]) for name in names}


def each(array: np.ndarray, take: Callable[[np.ndarray], Taken]) -> Taken | dict[str, Taken]:
    """Applies a function to an array, or to each of several; these come back by name.

    Args:
        array: The array from a data set.
        take: The function, which gets plain arrays.
    """
    if array.dtype.names is None:
        return take(array)
    return {name: take(one) for name, one in apart(array).items()}

"""Reads the user's `.npz` file, and refuses data that no model can be trained on, with the line that corrects them."""

import functools
import os
from collections.abc import Callable, Mapping

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.files.arrays import read_arrays
from samestep.common.files.reading import Unreadable, open_plain
from samestep.common.workload.data.dataset import ARRAYS, Split

LARGE = 16
"""The largest inputs without a note: the initial weights suit inputs of about 1, and larger ones give a larger initial loss."""

NEEDED = f"a .npz file with the arrays {', '.join(ARRAYS)}"
"""A description of the required file, for messages."""


def read(path: str, real: bool) -> Split:
    """Reads and checks the four arrays. Gray-scale images get a channel dimension, and single real targets their dimension.

    Args:
        path: The file.
        real: Whether the model takes real inputs.

    Raises:
        ConfigError: The file is missing or malformed, or holds data that cannot be used for training.
    """
    return read_once(path, _read, real)


def read_once(path: str, make: Callable[..., Split], *how: bool) -> Split:
    """Reads a file once per process, and again if it has changed.

    Args:
        path: The file.
        make: Reads and checks the arrays, given the path and `how`.
        how: Further arguments of `make`.

    Raises:
        ConfigError: The file is missing or malformed.
    """
    try:
        with open_plain(path) as file:
            about = os.fstat(file.fileno())
        return _versions(path, make, how, (about.st_ino, about.st_size, about.st_mtime_ns))
    except Unreadable as error:
        raise ConfigError(f"--data {path} cannot be read: {error}; give {NEEDED}.") from None


@functools.lru_cache(maxsize=4)
def _versions(path: str, make: Callable[..., Split], how: tuple[bool, ...], version: tuple[int, int, int]) -> Split:
    return make(path, *how)


def _read(path: str, real: bool) -> Split:
    arrays = read_arrays(path, ARRAYS)
    missing = [name for name in ARRAYS if name not in arrays]
    if len(missing) == len(ARRAYS):
        raise ConfigError(f"--data {path} has none of the arrays {', '.join(ARRAYS)}; save yours under these names.")
    if missing:
        raise ConfigError(f"--data {path} lacks {', '.join(missing)}; give {NEEDED}.")
    arrays = {name: _clean(path, name, arrays[name], real) for name in ARRAYS}
    if real:
        arrays = {name: _with_last(name, array) for name, array in arrays.items()}
    check_examples(path, arrays)
    return Split(**arrays)


def check_examples(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuses inputs and targets with different numbers of examples, or with none.

    Args:
        path: The file.
        arrays: The arrays by name.

    Raises:
        ConfigError: The numbers of examples differ, or are zero.
    """
    for part in ("train", "test"):
        inputs, targets = arrays[f"{part}_inputs"], arrays[f"{part}_targets"]
        if not inputs.ndim or not targets.ndim or len(inputs) != len(targets) or not inputs.size or not targets.size:
            raise ConfigError(
                f"--data {path}: {part}_inputs {list(inputs.shape)} and {part}_targets {list(targets.shape)} do not hold "
                f"the same, positive number of examples."
            )


def _clean(path: str, name: str, array: np.ndarray, real: bool) -> np.ndarray:
    where = f"--data {path}: {name}"
    _check_kind(where, array)
    if name.endswith("targets"):
        _check_targets(where, name, array, real)
    elif real:
        _check_real_inputs(where, array)
    return as_numbers(where, array, real and name.endswith("inputs"))


def as_numbers(where: str, array: np.ndarray, real: bool = False, lowest: int = 0) -> np.ndarray:
    """Returns an array as int64, or as finite float64 that float32 can represent.

    Args:
        where: The name of the array in messages.
        array: The array as it was read.
        real: Whether whole numbers become real.
        lowest: The lowest allowed whole number.

    Raises:
        ConfigError: The array holds something else.
    """
    _check_kind(where, array)
    if array.dtype.kind == "f" or real:
        return _rounded(where, array)
    if array.size and (array.min() < lowest or array.max() >= 2**31):
        wrong = array.min() if array.min() < lowest else array.max()
        raise ConfigError(f"{where} holds {wrong}; whole numbers must be at least {lowest} and less than 2^31.")
    return array.astype(np.int64)


def _check_kind(where: str, array: np.ndarray) -> None:
    if array.dtype.kind == "c":
        raise ConfigError(
            f"{where} is {array.dtype}; give real numbers: its real and its imaginary part, as in `numpy.stack([a.real, a.imag], "
            f"-1)`."
        )
    if array.dtype.kind not in "iubf":
        raise ConfigError(f"{where} is {array.dtype}; give real or whole numbers.")


def _check_targets(where: str, name: str, array: np.ndarray, real: bool) -> None:
    if array.dtype.kind == "f" and not real:
        raise ConfigError(
            f"{where} must be whole numbers from 0 up, not {array.dtype}; give `{name}.astype(int)`, or for a "
            f"regression choose an mlp or cnn workload."
        )
    if real and array.ndim == 2 and array.shape[1] > 1:
        ones = array == 1
        if (ones.sum(axis=1) == 1).all() and (ones | (array == 0)).all():
            raise ConfigError(f"{where} {list(array.shape)} is one-hot; give the classes: `{name}.argmax(axis=1)`.")


def _check_real_inputs(where: str, array: np.ndarray) -> None:
    """Refuses large whole numbers, such as bytes. Large real numbers may be intended, so they only get a note elsewhere."""
    if array.dtype.kind == "f" or not array.size:
        return
    largest = max(int(array.max()), -int(array.min()))
    if largest > LARGE:
        scale = 255 if array.dtype == np.uint8 else largest
        raise ConfigError(
            f"{where} are whole numbers ({array.dtype}) up to {largest}, and the model takes real numbers of about 1; "
            f"scale both: `train_inputs, test_inputs = train_inputs / {scale}, test_inputs / {scale}`."
        )


def _rounded(where: str, array: np.ndarray) -> np.ndarray:
    """Rounds real numbers to float32, and returns them as float64."""
    with np.errstate(over="ignore"):
        rounded = array.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise ConfigError(f"{where} holds numbers that are not finite in float32; clean or scale them first.")
    return rounded.astype(np.float64)


def _with_last(name: str, array: np.ndarray) -> np.ndarray:
    """Adds a channel dimension to gray-scale images, and a dimension to single real targets."""
    lacks_last = array.ndim == (1 if name.endswith("targets") else 3) and array.dtype.kind == "f"
    return array[..., None] if lacks_last else array

"""Reads arrays for a user's model, which takes them in their original shapes and dtypes.

There may be several inputs: `train_inputs.NAME` and `test_inputs.NAME` in the file, or a mapping from a function.
"""

from collections.abc import Mapping

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.files.arrays import read_arrays
from samestep.common.workload.data.dataset import ARRAYS, Split
from samestep.common.workload.data.several import apart, together
from samestep.common.workload.data.user_file import NEEDED, as_numbers, check_examples, read_once

LOWEST = -(2**31)
"""The lowest whole number: negative numbers have a meaning to the model, e.g. as padding targets that do not count."""


def read_as_given(path: str) -> Split:
    """Reads the four arrays, each of which may consist of several named ones.

    Args:
        path: A `.npz` file.

    Raises:
        ConfigError: The file is missing or malformed, or holds data that cannot be used for training.
    """
    return read_once(path, _read)


def _read(path: str) -> Split:
    found = read_arrays(path)
    arrays = {name: array for name in ARRAYS if (array := _one(path, name, found)) is not None}
    if missing := [name for name in ARRAYS if name not in arrays]:
        raise ConfigError(f"--data {path} lacks {', '.join(missing)}; give {NEEDED}.")
    check_examples(path, arrays)
    train, test = (_told(arrays[f"{part}_inputs"]) for part in ("train", "test"))
    if train != test:
        raise ConfigError(f"--data {path}: an example of train_inputs is {train}, and one of test_inputs is {test}.")
    return Split(**arrays)


def _one(path: str, name: str, found: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Returns the array of a name, or several arrays combined; None if there is none."""
    if name in found:
        return as_numbers(f"--data {path}: {name}", found[name], lowest=LOWEST)
    named = {
        key.removeprefix(f"{name}."): as_numbers(f"--data {path}: {key}", array, lowest=LOWEST)
        for key, array in found.items()
        if key.startswith(f"{name}.") and name.endswith("inputs")
    }
    try:
        return together(named) if named else None
    except ValueError as error:
        raise ConfigError(f"--data {path}: {name}: {error}.") from None


def _told(array: np.ndarray) -> str:
    """Returns a description of an example's inputs."""
    return ", ".join(f"{name} {one.dtype} {list(one.shape[1:])}".lstrip() for name, one in apart(array).items())


def flattened(arrays: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Returns arrays, or mappings of arrays, under the names that a file uses, such as `train_inputs.NAME`.

    Args:
        arrays: The arrays that a user's function returned, by name.

    Raises:
        ConfigError: An array is masked, and a file would contain the values under the mask.
    """
    given: dict[str, object] = {}
    for name, value in arrays.items():
        given |= {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
    for name, value in given.items():
        if masked := int(np.ma.count_masked(value)) if np.ma.isMaskedArray(value) else 0:
            raise ConfigError(
                f"{name} is a masked array with {masked:,} values masked, and the mask would be lost; return "
                f"`array.filled(0)`, and the mask as another input or as targets of -100."
            )
    return {name: np.asarray(value) for name, value in given.items()}

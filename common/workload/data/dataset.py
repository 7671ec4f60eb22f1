"""What a data set is: four arrays, their hash, and the cache that holds them decoded."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import platformdirs

from samestep.common.errors import Unavailable, WorkerFailed
from samestep.common.files.arrays import read_arrays, save_arrays
from samestep.common.files.reading import Unreadable, read_bytes
from samestep.common.files.writing import open_directory, replacing
from samestep.common.workload.array_type import Array
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import IGNORED

PACKAGED_BYTES = 2**26
"""The largest size of a file that is read from an installed package."""
ARRAYS = ("train_inputs", "train_targets", "test_inputs", "test_targets")


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """A data set with a fixed split into training and held-out examples.

    Attributes:
        train_inputs: [examples, ...]; float64 or int64, or records of several arrays, as in `several.py`.
        train_targets: [examples, ...]; int64, or float64 for a regression.
        test_inputs: [held-out examples, ...].
        test_targets: [held-out examples, ...].
    """

    train_inputs: Array
    train_targets: Array
    test_inputs: Array
    test_targets: Array

    @functools.cached_property
    def sha256(self) -> str:
        """The SHA-256 of the bytes, shapes and dtypes of all four arrays."""
        import numpy as np

        digest = hashlib.sha256()
        for name in ARRAYS:
            array = np.ascontiguousarray(getattr(self, name))
            kind = array.dtype.str if array.dtype.names is None else array.dtype.descr
            digest.update(f"{name} {kind} {array.shape} ".encode())
            digest.update(array.data)
        return digest.hexdigest()


@functools.lru_cache(maxsize=2)
def load(data: DataSpec) -> Split:
    """Reads a data set once per process: first to check a run, then to train it."""
    return data.load()


class ReadWhole:
    """A data set that is not drawn at random, and whose examples are counted by reading it."""

    is_random: ClassVar[bool] = False

    def num_examples(self: DataSpec) -> int:
        """Returns the number of training examples in the data."""
        return len(load(self).train_inputs)


def cache_directory() -> Path:
    """Returns the directory in which decoded data and the oracle's curves are cached (`XDG_CACHE_HOME` moves it)."""
    return Path(platformdirs.user_cache_dir("samestep", appauthor=False))


def make_cache_directory() -> None:
    """Makes the cache directory, accessible by its user only.

    Raises:
        OSError: The directory cannot be made.
    """
    cache_directory().mkdir(mode=0o700, parents=True, exist_ok=True)


def package_file(package: str, path: str, lacking: str = "") -> Path:
    """Finds a data file inside an installed package, without importing the package.

    Args:
        package: The name of the package.
        path: The path of the file, below the package's folder.
        lacking: The message if the file is missing; by default, that the extra `data` installs it.

    Raises:
        Unavailable: The file is not installed.
    """
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (file := Path(folder, path)).is_file():
            return file
    raise Unavailable(
        lacking or f"the data set in the package {package} is not installed: pip install 'samestep[data]'"
    )


def held_out(inputs: Array, targets: Array, test: Array) -> Split:
    """Splits arrays by a boolean mask of the held-out examples.

    Args:
        inputs: [examples, ...].
        targets: [examples, ...].
        test: [examples], true for each held-out example.
    """
    return Split(inputs[~test], targets[~test], inputs[test], targets[test])


def ignore_targets(split: Split, share: float) -> Split:
    """Marks training targets as not counted, a different share of each example's, so shards have different numbers of them.

    Args:
        split: The data, with ids as targets.
        share: The share of all targets, on average; at most a half.
    """
    import numpy as np

    stream, shape = np.random.default_rng(0), split.train_targets.shape
    shares = 2 * share * stream.random((shape[0], *[1] * (len(shape) - 1)))
    targets = np.where(stream.random(shape) < shares, IGNORED, split.train_targets)
    return dataclasses.replace(split, train_targets=targets)


def cached(source: bytes, decode: Callable[..., Split], *arguments: int) -> Split:
    """Decodes a source once, and later reads the arrays from the user's cache.

    Args:
        source: The undecoded bytes. They are a part of the cache key, as are the decoder's module and its arguments.
        decode: Turns the source and the arguments into arrays.
        *arguments: Plain numbers for the decoder.
    """
    code = b"".join(read_bytes(inspect.getfile(each)) for each in (decode, cached))  # they decide the arrays as well
    key = hashlib.sha256(source + code + repr(arguments).encode()).hexdigest()[:24]
    path = cache_directory() / "data" / f"{key}.npz"
    try:
        arrays = read_arrays(path, ARRAYS)
        return Split(**{name: arrays[name] for name in ARRAYS})
    except (Unreadable, KeyError):
        split = decode(source, *arguments)  # not cached yet, or damaged
    # A cache that cannot be written only costs time.
    with contextlib.suppress(OSError, WorkerFailed):
        make_cache_directory()
        open_directory(path.parent)
        path.unlink(missing_ok=True)
        with replacing(path) as file:
            save_arrays(file, {name: getattr(split, name) for name in ARRAYS})
    return split

"""The user's own arrays: `--data file.npz`."""

import dataclasses
import functools
import math
import zipfile
import zlib
from pathlib import Path
from typing import ClassVar

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.workload.data.dataset import ARRAYS, Split
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import ArraySpec, DataSizes, ModelSpec

_NEEDED = f"a .npz file with the arrays {', '.join(ARRAYS)}"
_UNREADABLE = (ValueError, OSError, zipfile.BadZipFile, zlib.error, EOFError, TypeError, AttributeError, KeyError)


@dataclasses.dataclass(frozen=True)
class UserSpec:
    """The four arrays of a `.npz` file; sizes of inputs and classes follow from them.

    Attributes:
        path: The file.
        sha256: Of the arrays, so that the workload's digest tells two files apart.
        real: Whether the model takes real numbers, so that whole ones (images of bytes) become real.
    """

    name: ClassVar[str] = "your data"

    path: str
    sha256: str = ""
    real: bool = False

    def fit(self, model: ModelSpec) -> tuple[ModelSpec, DataSpec]:
        """The model follows the data.

        Raises:
            ConfigError: The model cannot take such data.
        """
        fitting = dataclasses.replace(self, real=model.inputs().ids is None)
        split = fitting.load()
        fitted = model.fitted(_sizes(split))
        specs = {"inputs": fitted.inputs(), "targets": fitted.targets()}
        expected = [(name, getattr(split, name), specs[name.partition("_")[2]]) for name in ARRAYS]
        for name, array, spec in expected:
            self._check_shape(name, array, fitted, spec, split.train_inputs.shape[1:])
        for name, array, spec in expected:
            if spec.ids is not None and (array >= np.asarray(spec.ids)).any():
                raise ConfigError(
                    f"--data {self.path}: {name} goes up to {array.max()}; the {fitted.name} takes ids below {spec.ids}."
                )
        return fitted, dataclasses.replace(fitting, sha256=split.sha256)

    def load(self) -> Split:
        """Reads and checks the arrays; ids become int64, real numbers float32-representable float64.

        Raises:
            ConfigError: The file is missing or malformed; the message names what it needs.
        """
        return _read(self.path, self.real)

    def _check_shape(
        self, name: str, array: np.ndarray, model: ModelSpec, spec: ArraySpec, train_shape: tuple[int, ...]
    ) -> None:
        shape = array.shape[1:]
        # Real inputs may have any shape that the model flattens, the same one throughout.
        same = shape == train_shape and math.prod(shape) == math.prod(spec.shape)
        fits = same if spec.ids is None else shape == spec.shape
        if not fits or (spec.ids is None) != (array.dtype.kind == "f"):
            kind, sizes = ("real" if spec.ids is None else "whole"), "".join(f", {n}" for n in spec.shape)
            raise ConfigError(
                f"--data {self.path}: the {model.name} takes {kind} numbers [examples{sizes}], "
                f"not {array.dtype} {list(array.shape)} as {name}."
            )


def _sizes(split: Split) -> DataSizes:
    num_classes = 1 + int(max(split.train_targets.max(), split.test_targets.max()))
    shape, cardinalities = split.train_inputs.shape[1:], ()
    if split.train_inputs.dtype.kind == "i" and len(shape) == 1 and split.test_inputs.shape[1:] == shape:
        highest = np.maximum(split.train_inputs.max(axis=0), split.test_inputs.max(axis=0))
        cardinalities = tuple(int(top) + 1 for top in highest)
        if split.train_targets.ndim == 2:  # a language model: inputs and targets share one vocabulary
            num_classes = max(num_classes, *cardinalities)
    return DataSizes(shape, num_classes, cardinalities)


@functools.cache
def _read(path: str, real: bool) -> Split:
    if not Path(path).is_file():
        raise ConfigError(f"--data {path}: there is no such file; give {_NEEDED}.")
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = [name for name in ARRAYS if name not in file.files]
            arrays = {} if missing else {name: file[name] for name in ARRAYS}
    except _UNREADABLE as error:
        raise ConfigError(f"--data {path} cannot be read ({type(error).__name__}); give {_NEEDED}.") from None
    if missing:
        raise ConfigError(f"--data {path} lacks {', '.join(missing)}; give {_NEEDED}.")
    arrays = {name: _clean(path, name, array, real) for name, array in arrays.items()}
    for part in ("train", "test"):
        inputs, targets = arrays[f"{part}_inputs"], arrays[f"{part}_targets"]
        if not inputs.ndim or not targets.ndim or len(inputs) != len(targets) or not inputs.size or not targets.size:
            raise ConfigError(
                f"--data {path}: {part}_inputs {list(inputs.shape)} and {part}_targets {list(targets.shape)} do not hold "
                f"the same, positive number of examples."
            )
    return Split(**arrays)


def _clean(path: str, name: str, array: np.ndarray, real: bool) -> np.ndarray:
    """An array as int64 from 0 up, or as finite float32-representable float64."""
    where = f"--data {path}: {name}"
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"--data {path} cannot be read ({name} is no array); give {_NEEDED}.")
    if array.dtype.kind not in "iubf":
        raise ConfigError(f"{where} is {array.dtype}; give real or whole numbers.")
    if name.endswith("targets") and array.dtype.kind == "f":
        raise ConfigError(f"{where} must be whole numbers from 0 up, not {array.dtype}.")
    if array.dtype.kind == "f" or (real and name.endswith("inputs")):
        with np.errstate(over="ignore"):
            rounded = array.astype(np.float32)
        if not np.isfinite(rounded).all():
            raise ConfigError(f"{where} holds numbers that are not finite in float32; clean or scale them first.")
        is_grey = real and array.ndim == 3
        return (rounded[..., None] if is_grey else rounded).astype(np.float64)
    if array.size and (array.min() < 0 or array.max() >= 2**31):
        wrong = array.min() if array.min() < 0 else array.max()
        raise ConfigError(f"{where} holds {wrong}; whole numbers run from 0 up, to less than 2^31.")
    return array.astype(np.int64)

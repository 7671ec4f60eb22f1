"""The user's own arrays: `--data file.npz`. The model takes its sizes from them, and real-valued targets make it a regression."""

import dataclasses
import math
from typing import ClassVar

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.workload.data.as_given import read_as_given
from samestep.common.workload.data.dataset import ARRAYS, ReadWhole, Split
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.data.user_file import read
from samestep.common.workload.models.spec import ArraySpec, DataSizes, ModelSpec


@dataclasses.dataclass(frozen=True)
class UserSpec(ReadWhole):
    """The four arrays of a `.npz` file, which determine the sizes of inputs and outputs.

    Attributes:
        path: The file.
        sha256: The SHA-256 of the arrays, by which the workload's digest distinguishes two files.
        real: Whether the model takes real numbers, so whole numbers (scaled images) become real.
        as_given: Whether the arrays keep their shapes, because the model is the user's as well.
    """

    name: ClassVar[str] = "yours"

    path: str
    sha256: str = ""
    real: bool = False
    as_given: bool = False

    def fit(self, model: ModelSpec) -> tuple[ModelSpec, DataSpec]:
        """Makes the sizes of the model follow the data.

        Raises:
            ConfigError: The model cannot take such data.
        """
        fitting = dataclasses.replace(self, real=model.inputs().ids is None)
        split = fitting.load()
        try:
            fitted = model.fitted(_sizes(split))
        except ConfigError as error:
            raise ConfigError(f"--data {self.path}: {error}") from None
        specs = {"inputs": fitted.inputs(), "targets": fitted.targets()}
        expected = [
            (name, getattr(split, name), spec)
            for name in ARRAYS
            if not (spec := specs[name.partition("_")[2]]).several  # the model was described with these
        ]
        for name, array, spec in expected:
            self._check_shape(name, array, fitted, spec, split.train_inputs.shape[1:])
        for name, array, spec in expected:
            if spec.ids is not None and (array >= np.asarray(spec.ids)).any():
                raise ConfigError(
                    f"--data {self.path}: {name} goes up to {array.max()}; the {fitted.name} takes ids below {spec.ids}."
                )
        return fitted, dataclasses.replace(fitting, sha256=split.sha256)

    def load(self) -> Split:
        """Reads and checks the arrays. Ids become int64, and real numbers float64 that float32 can represent.

        Raises:
            ConfigError: The file is missing or malformed; the message says what it must contain.
        """
        return read_as_given(self.path) if self.as_given else read(self.path, self.real)

    def _check_shape(
        self, name: str, array: np.ndarray, model: ModelSpec, spec: ArraySpec, train_shape: tuple[int, ...]
    ) -> None:
        shape = array.shape[1:]
        # Real inputs may have any shape that the model can flatten, as long as all have the same.
        same = shape == train_shape and math.prod(shape) == math.prod(spec.shape)
        fits = same if spec.ids is None and name.endswith("inputs") else shape == spec.shape
        if not fits or (spec.ids is None) != (array.dtype.kind == "f"):
            kind, sizes = ("real" if spec.ids is None else "whole"), "".join(f", {n}" for n in spec.shape)
            raise ConfigError(
                f"--data {self.path}: {_told(model)} takes {kind} numbers [examples{sizes}], "
                f"not {array.dtype} {list(array.shape)} as {name}{_remedy(name, array, spec)}."
            )


def _told(model: ModelSpec) -> str:
    return f"the {model.name}" if model.facts.is_built_here else "your model with this loss"


def _remedy(name: str, array: np.ndarray, spec: ArraySpec) -> str:
    """Returns the code that turns a column into labels, or labels stored as real numbers into integers; "" for anything else."""
    column = "[:, 0]" if not spec.shape and array.shape[1:] == (1,) else ""
    is_stored = spec.ids is not None and array.dtype.kind == "f" and name.endswith("targets")
    cast = ".astype(int)" if is_stored and (array == np.round(array)).all() else ""
    fits = (() if column else array.shape[1:]) == spec.shape and (cast or array.dtype.kind == "i")
    column = ".ravel()" if column and cast else column  # a single real target got that dimension here
    return f"; give `{name}{column}{cast}`" if fits and column + cast else ""


def _sizes(split: Split) -> DataSizes:
    shape, targets = split.train_inputs.shape[1:], split.train_targets
    if targets.dtype.kind == "f":
        return DataSizes(shape, math.prod(targets.shape[1:]), loss="mean_squared_error")
    outputs, cardinalities = 1 + int(max(targets.max(), split.test_targets.max())), ()
    if split.train_inputs.dtype.kind == "i" and len(shape) == 1 and split.test_inputs.shape[1:] == shape:
        highest = np.maximum(split.train_inputs.max(axis=0), split.test_inputs.max(axis=0))
        cardinalities = tuple(int(top) + 1 for top in highest)
        if targets.ndim == 2:  # a language model: inputs and targets share one vocabulary
            outputs = max(outputs, *cardinalities)
    return DataSizes(shape, outputs, cardinalities)

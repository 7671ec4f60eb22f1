"""What is done to the initial weights before the first step: perturbed, saved or replaced, if that is asked for."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from samestep.common.files.arrays import read_arrays
from samestep.common.files.writing import replacing
from samestep.common.steps.recording import Recorder
from samestep.tf_impl.recording.dtypes import rounding_of_products
from samestep.tf_impl.recording.tensors import Held


class Start:
    """Prepares the initial weights as the options say."""

    def __init__(self, recorder: Recorder) -> None:
        """Reads the weights that are asked for.

        Args:
            recorder: Has the options.
        """
        self._recorder, options = recorder, recorder.options
        self._given = None if options.weights_from is None else read_arrays(Path(options.weights_from))
        self._arrays: dict[str, np.ndarray] = {}
        self._prepared: dict[int, Any] = {}

    def prepare(self, held: Held, weight: Any) -> None:
        """Prepares a tensor, once.

        Args:
            held: The tensor.
            weight: The variable of one replica.
        """
        options, tensor = self._recorder.options, held.tensor
        if tensor.role != "parameter" or id(weight) in self._prepared:
            return
        self._prepared[id(weight)] = weight
        if self._given is not None:
            self._load(held, weight, self._given.get(tensor.name))
        if options.perturb is not None:
            weight.assign(_perturbed(weight.numpy(), tensor.name, options.perturb))
        if options.weights_to is not None:
            self._arrays[tensor.name] = held.layout.to_torch(weight.numpy().astype(np.float32))

    def finish(self) -> None:
        """Saves what was prepared, and leaves if that is all that is wanted."""
        options = self._recorder.options
        if options.weights_to is not None:
            with replacing(Path(options.weights_to), is_users=True) as file:
                np.savez(file, **self._arrays)
        if options.stop_after == 0:
            self._recorder.leave()

    def _load(self, held: Held, weight: Any, array: np.ndarray | None) -> None:
        """Replaces the initial weight by that of the same name and shape."""
        name, shape, path = held.tensor.name, held.tensor.piece.shape, self._recorder.options.weights_from
        if array is None or array.shape != shape:
            self._recorder.note(f"{path} has no {name} of shape {shape}; its own initial weights were kept.")
        else:
            weight.assign(held.layout.from_torch(array).astype(weight.dtype.as_numpy_dtype))


def _perturbed(values: np.ndarray, name: str, seed: int) -> np.ndarray:
    """Multiplies each number by 1 + u or 1 - u, as its name, its place and the seed say: the same on all replicas."""
    unit = rounding_of_products(values.dtype)
    signs = np.random.default_rng([zlib.crc32(name.encode()), seed]).integers(0, 2, values.shape) * 2 - 1
    return (values.astype(np.float64) * (1 + unit * signs)).astype(values.dtype)

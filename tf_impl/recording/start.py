"""The weights before the first step: prepared as the options say, and looked at once they have values.

Weights that are made in a graph get their values when it is built.
"""

import weakref
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record

from samestep.common.files.arrays import read_arrays, save_arrays
from samestep.common.files.writing import replacing
from samestep.common.steps.record import FOLLOWER, absent, stats_dtype
from samestep.common.steps.recording import Recorder
from samestep.tf_impl.recording.dtypes import rounding_of_products
from samestep.tf_impl.recording.plans import is_wide
from samestep.tf_impl.recording.statistics import Statistics, unpack
from samestep.tf_impl.recording.tensors import TensorTable, TrackedTensor


class FirstWeights:
    """The initial weights of all replicas, prepared as the options say."""

    def __init__(self, recorder: Recorder, last: Mapping[int, np.ndarray]) -> None:
        """Starts without weights.

        Args:
            recorder: The recorder, which has the options.
            last: The last statistics in the record of the weights of each replica.
        """
        self._start, self._last = _Start(recorder), last
        self._new: list[tuple[int, tuple[TrackedTensor, ...]]] = []
        self._seen: dict[tuple[int, int, bool], tuple[weakref.ref[Any], np.ndarray]] = {}
        self._called: list[TrackedTensor] = []

    def see_model(self, model: Any) -> None:
        """Looks at a model that is about to be called eagerly, which may write its tensors before an update is seen."""
        table = TensorTable()
        table.add_model(model)
        pairs = [(each, each.container) for each in table.held]
        with record.stop_recording():  # a tape may be asked later which variables it has watched
            self._prepare(pairs)
            self._take(0, pairs)
        self._called = [each for each in table.held if each.tensor.role != "buffer"]

    def end_call(self) -> None:
        """Keeps only the parameters that a call has written, as a spectral norm does: a script may still load the others."""
        if not self._called or not tf.executing_eagerly():
            return
        before = {_key(0, each): self._seen[_key(0, each)] for each in self._called}
        with record.stop_recording():
            self._take(0, [(each, each.container) for each in self._called])
        self._called = []
        for key, entry in before.items():
            _, now = self._seen.pop(key)
            if now["bits"] != entry[1]["bits"]:
                self._seen[key] = entry

    def expect(self, replica: int, held: Sequence[TrackedTensor]) -> None:
        """Looks at new variables now, or when they have values.

        Args:
            replica: The replica that holds them.
            held: The variables.
        """
        self._new.append((replica, tuple(held)))
        self.see()

    def see(self) -> None:
        """Looks at the new variables that have values by now."""
        with tf.init_scope():
            for entry in list(self._new):
                if entry not in self._new:
                    continue  # it was seen while the statistics of one before were traced, which initializes variables
                replica, held = entry
                there = [each for each in held if each.container is not None and self._row_of(replica, each) is None]
                pairs = [(each, each.of_replica(replica)) for each in there]
                if all(weight.is_initialized() for _, weight in pairs):
                    self._new.remove(entry)
                    if pairs:
                        self._prepare(self._without_earlier(replica, pairs))
                        self._start.finish()
                        self._take(replica, pairs)

    def of(self, replica: int, held: Sequence[TrackedTensor]) -> np.ndarray:
        """Returns what a record keeps of the first values of variables; NaN where they were not seen.

        Args:
            replica: The replica that holds them.
            held: The variables.
        """
        weights = absent(len(held), stats_dtype(is_wide(held)))
        for place, each in enumerate(held):
            if (seen := self._row_of(replica, each)) is not None:
                weights[place] = seen
        return weights

    def _row_of(self, replica: int, held: TrackedTensor) -> np.ndarray | None:
        made, row = self._seen.get(_key(replica, held), (None, None))
        return row if made is held.made else None  # another variable that was deleted may have had this id

    def _without_earlier(self, replica: int, pairs: list[tuple[TrackedTensor, Any]]) -> list[tuple[TrackedTensor, Any]]:
        """Returns the variables whose first values are initial weights, and not copies of what others have by now."""
        if replica not in self._last:
            return pairs
        self._take(replica, pairs)
        known = {*self._last[replica]["bits"].tolist()}
        return [pair for pair in pairs if self.of(replica, [pair[0]])["bits"].item() not in known]

    def _prepare(self, pairs: Sequence[tuple[TrackedTensor, Any]]) -> None:
        for each, weight in pairs:
            self._start.prepare(each, weight)

    def _take(self, replica: int, pairs: Sequence[tuple[TrackedTensor, Any]]) -> None:
        if not pairs:
            return
        held = [each for each, _ in pairs]
        statistics = Statistics([each.layout for each in held], is_wide(held))
        words = statistics([weight.read_value() for _, weight in pairs]).numpy()
        for each, row in zip(held, unpack(words, is_wide(held)), strict=True):
            self._seen[_key(replica, each)] = each.made, row


def _key(replica: int, held: TrackedTensor) -> tuple[int, int, bool]:
    """Returns the key of a variable's first values: a follower that an optimizer updates after all is prepared again."""
    return replica, held.key, held.tensor.role == FOLLOWER


class _Start:
    """Prepares the initial weights as the options say."""

    def __init__(self, recorder: Recorder) -> None:
        """Reads the weights that are asked for.

        Args:
            recorder: The recorder, which has the options.
        """
        self._recorder, options = recorder, recorder.options
        self._given = None if options.weights_from is None else read_arrays(Path(options.weights_from))
        self._arrays: dict[str, np.ndarray] = {}
        self._prepared: dict[int, weakref.ref[Any]] = {}

    def prepare(self, held: TrackedTensor, weight: Any) -> None:
        """Prepares a tensor, once.

        Args:
            held: The tensor.
            weight: The variable of one replica.
        """
        options, tensor = self._recorder.options, held.tensor
        prepared = self._prepared.get(id(weight))
        if tensor.role != "parameter" or (prepared is not None and prepared() is weight):
            return
        self._prepared[id(weight)] = weakref.ref(weight)
        if self._given is not None:
            self._load(held, weight, self._given.get(tensor.name))
        if options.perturb is not None:
            weight.assign(_perturbed(weight.numpy(), tensor.name, options.perturb))
        if options.weights_to is not None:
            self._arrays[tensor.name] = held.layout.to_torch(weight.numpy().astype(np.float32))

    def finish(self) -> None:
        """Saves what was prepared, and ends the script if nothing else is wanted."""
        options = self._recorder.options
        if options.weights_to is not None:
            with replacing(Path(options.weights_to), is_users=True) as file:
                save_arrays(file, self._arrays)
        if options.stop_after == 0:
            self._recorder.leave()

    def _load(self, held: TrackedTensor, weight: Any, array: np.ndarray | None) -> None:
        """Replaces an initial weight by the given one of the same name and shape."""
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

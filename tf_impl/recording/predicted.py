"""What models have returned outside of any tape. If another model is given it, as in the critic of a GAN, it is not data.

It may have become an array or the argument of a tf.function, which no longer shows where it comes from. So the last
results are held until the next step is written, and are found among its examples by the hashes of their rows.
"""

import collections
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from samestep.common.steps.recording import Recorder
from samestep.common.steps.rows import hash_rows, mix
from samestep.common.steps.wrapping import Wrap
from samestep.tf_impl.recording.examples import Results
from samestep.tf_impl.recording.plans import UpdatePlan
from samestep.tf_impl.recording.tensors import container_of

KEPT = 32
"""The number of results that are held, and of results whose rows are known."""
MOST = 2**22
"""The most numbers that all results have that are held."""


class Predicted:
    """The rows of the last results of models."""

    def __init__(self, results: Results) -> None:
        """Starts without results.

        Args:
            results: The results, to which tensors are added.
        """
        self._results = results
        self._held = collections.deque[tuple[Sequence[weakref.ref[Any]], Any]](maxlen=KEPT)
        self._rows = collections.deque[tuple[Sequence[weakref.ref[Any]], frozenset[int]]](maxlen=KEPT)
        self._callers = weakref.WeakKeyDictionary[Any, list[weakref.ref[Any]]]()

    def add(self, models: Iterable[Any], value: Any) -> None:
        """Holds the last of what models returned until a step is written.

        Args:
            models: The Keras models or layers.
            value: An array or a tensor, or several.
        """
        self._results.add(value)
        made = [weakref.ref(each) for each in models]
        for each in keras.tree.flatten(value):
            if isinstance(each, np.ndarray) or (tf.is_tensor(each) and not tf.is_symbolic_tensor(each)):
                dtype, size = tf.as_dtype(each.dtype), int(np.prod(each.shape))
                if len(each.shape) and 0 < size <= MOST and (dtype.is_floating or dtype.is_integer):
                    self._held.append((made, each))
        while sum(int(np.prod(each.shape)) for _, each in self._held) > MOST:
            self._held.popleft()

    def see(self, model: Any, value: Any, function: Any) -> None:
        """Notes that a model was called outside of any tape.

        Args:
            model: The model, or a layer.
            value: What it returned.
            function: The tf.function that is built or runs, which returns what is computed from it; None if there is none.
        """
        if tf.executing_eagerly():
            self.add([model], value)
            return
        self._results.add(value)
        if function is not None:
            self._callers.setdefault(function, []).append(weakref.ref(model))

    def models_in(self, function: Any) -> list[Any]:
        """Returns the models that a tf.function calls outside of any tape."""
        return [model for made in self._callers.get(function, ()) if (model := made()) is not None]

    def without(self, sums: bytes | None, plans: Iterable[UpdatePlan]) -> bytes | None:
        """Returns the rows of a step that no trained model has returned.

        Args:
            sums: The sums that are mixed into the hashes of the rows; None if they are not known.
            plans: The plans of the optimizers, which say what is trained.
        """
        if not (self._held or self._rows) or not sums:
            return sums
        while self._held:
            made, value = self._held.popleft()
            self._rows.append((made, frozenset(hash_rows([np.asarray(value)]).tolist())))
        trained = {
            each.key for plan in plans for each in plan.held if each.tensor.is_trained and each.container is not None
        }
        known = set[int]()
        for made, own in self._rows:
            models = [model for each in made if (model := each()) is not None]
            if any(id(container_of(each)) in trained for model in models for each in model.variables):
                known |= own
        rows = np.frombuffer(sums, np.uint64)
        return rows[[each not in known for each in mix(rows).tolist()]].tobytes() or None


def follow_predictions(predicted: Predicted, here: threading.local, recorder: Recorder) -> Wrap:
    """Returns the function that wraps a method of a model that returns arrays.

    Args:
        predicted: Holds the arrays.
        here: Says whether a layer is called inside another one, as everything is that a prediction calls.
        recorder: The recorder, which guards the script from errors.
    """
    add = recorder.guarded(predicted.add)

    def follow(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def predict(model: Any, *arguments: Any, **keywords: Any) -> Any:
            was_inside, here.is_inside = vars(here).get("is_inside", False), True
            try:
                result = original(model, *arguments, **keywords)
            finally:
                here.is_inside = was_inside
            add([model], result)
            return result

        return predict

    return follow

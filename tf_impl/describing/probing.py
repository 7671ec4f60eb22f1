"""Runs a few examples through the user's TensorFlow model, for `common/workload/models/probing.py`."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

from samestep.common.workload.data.dataset import Split
from samestep.common.workload.declaration import RETURNED, Model
from samestep.common.workload.declared import call_user
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.findings import Habits
from samestep.common.workload.models.loss_check import part_losses, reduction_of
from samestep.common.workload.models.probing import EXAMPLES, FORWARD_PASS, How, ProbedPass, Rows, SeenLayer, cut
from samestep.tf_impl.features.applied import norms_of
from samestep.tf_impl.models.inputs import as_inputs
from samestep.tf_impl.models.outputs import main_outputs
from samestep.tf_impl.models.user_loss import loss_function
from samestep.tf_impl.models.user_model import UserModel
from samestep.tf_impl.tracing import path_of

_SEED = "seed_generator_state"
"""The end of the path of the variable from which Keras draws its random numbers."""


class Probe:
    """A user's TensorFlow model on a few examples. Every experiment starts from its initial variables."""

    def __init__(self, built: UserModel, model: Model, split: Split, source: str) -> None:
        """Keeps the model's initial variables.

        Args:
            built: The model in float64, which is left unchanged.
            model: Its declaration.
            split: The data.
            source: Where it is declared, for messages.
        """
        self._built, self._model, self._source = built, model, source
        self.losses_only, self.reduction = model.loss == RETURNED, reduction_of(model)
        self._inputs, self._targets = (
            as_inputs(array[:EXAMPLES]) for array in (split.train_inputs, split.train_targets)
        )
        self.initial: Mapping[str, np.ndarray] = self._buffers()
        norms = norms_of(built.layers())
        self.normalizing: Collection[str] = {
            name
            for name, variable in built.buffers.items()
            if any(variable is own.value for norm in norms for own in norm.non_trainable_variables)
        }

    def take(self, how: How) -> ProbedPass:
        """Runs the examples through the model, once or twice from the same state."""
        with self._started(how), _watching(self._built.model) as drawing:
            outputs, losses = self._pass(how)
            after = self._buffers()
        found = ProbedPass(outputs, after, tuple(drawing), losses)
        if not how.is_twice:
            return found
        with self._started(how):
            return dataclasses.replace(found, again=self._pass(how)[0])

    def layers(self, how: How) -> Iterator[SeenLayer]:
        """Yields the inputs that the whole model passes to each layer, which can be called alone with a part of them."""
        with self._started(how):
            with _calls(self._built.model) as calls:
                self._pass(how)
            for path, (layer, args, named, output) in calls.items():
                given = [each for each in tf.nest.flatten((args, named)) if tf.is_tensor(each)]
                yield SeenLayer(path, (*given, output), functools.partial(_of_rows, layer, args, named))

    def sums(self, habits: Habits) -> tuple[str, ...]:
        """Returns the layers that add something to the loss that is not a mean over examples, in training or in evaluation.

        Args:
            habits: The findings so far. If random draws cannot be held still, only evaluation is used.
        """
        if len(self._targets) < EXAMPLES:
            return ()  # too few to see it
        found = dict.fromkeys(self._built.added.sums(self._built.predict, self._inputs))
        if habits.is_steady and habits.are_stilled:
            with self._started(How(is_frozen=True, running=habits.running)):
                found |= dict.fromkeys(self._built.added.sums(self._built, self._inputs))
        return tuple(found)

    def _losses(self, returned: object, rows: Rows) -> np.ndarray | None:
        function = loss_function(self._model)
        if function is None:
            return None
        targets = cut(self._targets, rows)
        losses = np.asarray(call_user(function, self._source, "the loss", returned, targets))
        return part_losses(self._model, self._source, losses, np.asarray(targets))

    @contextlib.contextmanager
    def _started(self, how: How) -> Iterator[None]:
        """Starts from the initial variables, with layers switched for as long as the context lasts."""
        keras.utils.set_random_seed(how.seed)
        self._set({**self.initial, **how.buffers}, how.seed)
        with DRAWS.held(how.is_still), contextlib.ExitStack() as frozen:
            if how.is_frozen:
                frozen.callback(self._built.freeze(how.running))
            yield
        self._set(self.initial)

    def _pass(self, how: How) -> tuple[np.ndarray, np.ndarray | None]:
        what = "the forward pass in training"
        returned = call_user(self._built, self._source, what, cut(self._inputs, how.rows))
        return tf.cast(main_outputs(returned), tf.float64).numpy(), self._losses(returned, how.rows)

    def _buffers(self) -> dict[str, np.ndarray]:
        return {name: variable.numpy() for name, variable in self._built.buffers.items()}

    def _set(self, buffers: Mapping[str, np.ndarray], seed: int = 0) -> None:
        for name, value in buffers.items():
            self._built.buffers[name].assign(value + (seed if name.endswith(_SEED) else 0))


@contextlib.contextmanager
def _wrapped(wrap: Callable[..., Any]) -> Iterator[None]:
    """Makes a context in which a function is called in place of every layer, with the layer and its original call."""
    plain = keras.layers.Layer.__call__

    def call(layer: Any, *args: Any, **named: Any) -> Any:
        return wrap(plain, layer, *args, **named)

    with mock.patch.object(keras.layers.Layer, "__call__", call):
        yield


@contextlib.contextmanager
def _watching(model: Any) -> Iterator[dict[str, None]]:
    """Yields a mapping that collects the layers in which a function of TensorFlow draws random numbers."""
    found: dict[str, None] = {}
    inside: list[Any] = []

    def watch(*_: object) -> None:
        found[path_of(inside[-1], model) if inside and inside[-1] is not model else FORWARD_PASS] = None

    def wrap(plain: Callable[..., Any], layer: Any, *args: Any, **named: Any) -> Any:
        inside.append(layer)
        try:
            return plain(layer, *args, **named)
        finally:
            inside.pop()

    with _wrapped(wrap), DRAWS.watched(watch):
        yield found


@contextlib.contextmanager
def _calls(model: Any) -> Iterator[dict[str, tuple[Any, Any, Any, tf.Tensor]]]:
    """Yields the inputs and the first result of the first call of each layer of a model, innermost layers first."""
    found: dict[str, tuple[Any, Any, Any, tf.Tensor]] = {}

    def wrap(plain: Callable[..., Any], layer: Any, *args: Any, **named: Any) -> Any:
        outputs = plain(layer, *args, **named)
        first = tf.nest.flatten(outputs)[0]
        if layer is not model and tf.is_tensor(first) and first.dtype.is_floating:
            found.setdefault(path_of(layer, model), (layer, args, named, first))
        return outputs

    with _wrapped(wrap):
        yield found


def _of_rows(layer: Any, args: Any, named: Any, rows: Rows) -> np.ndarray:
    """Calls a layer with some rows of its inputs."""
    cut = lambda each: each[slice(*rows)] if tf.is_tensor(each) else each  # noqa: E731
    return tf.nest.flatten(layer(*tf.nest.map_structure(cut, args), **tf.nest.map_structure(cut, named)))[0].numpy()

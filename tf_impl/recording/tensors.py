"""The tensors of a script: the variables of the models that it trains, and of its optimizers."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from samestep.common.steps.keras_layout import KerasLayout, layout_of
from samestep.common.steps.record import RecordedTensor

KERAS_VARIABLE: type = keras.Variable.__bases__[0]
"""What layers hold: before Keras 3.7 it is not keras.Variable, but the class that this one is made of."""


@dataclasses.dataclass(frozen=True, eq=False)
class Held:
    """A variable that is recorded.

    Attributes:
        container: TensorFlow's variable; under a strategy, that of all replicas.
        layout: In which it is projected.
        tensor: What the header says.
    """

    container: Any
    layout: KerasLayout
    tensor: RecordedTensor

    def of_replica(self, replica: int) -> Any:
        """Returns the variable of one replica."""
        return tf.distribute.get_strategy().experimental_local_results(self.container)[replica]


def container_of(variable: Any) -> Any:
    """TensorFlow's variable.

    Args:
        variable: One of Keras, or of TensorFlow.
    """
    return variable._value if isinstance(variable, KERAS_VARIABLE) else variable


class TensorTable:
    """All tensors seen so far, in the order of the models."""

    def __init__(self) -> None:
        """Knows none."""
        self.held: list[Held] = []
        self._of: dict[int, Held] = {}
        self._names: set[str] = set()

    def add_model(self, model: keras.layers.Layer) -> None:
        """Adds all float variables of a model."""
        for layer in model._flatten_layers():
            if isinstance(layer, keras.metrics.Metric):
                continue
            for variable in layer._trainable_variables:
                self._add(variable, layer, "parameter")
            for variable in layer._non_trainable_variables:
                self._add(variable, layer, "buffer")

    def of_optimizer(self, variables: Sequence[Any]) -> list[Held]:
        """Returns the tensors that an optimizer updates, and those that none does.

        Args:
            variables: The variables of the optimizer.
        """
        for variable in variables:
            self._add(variable, None, "parameter")
        own = {id(container_of(variable)) for variable in variables}
        return [each for each in self.held if id(each.container) in own or not each.tensor.is_trained]

    def _add(self, variable: Any, layer: keras.layers.Layer | None, role: str) -> None:
        container = container_of(variable)
        if id(container) in self._of or container is None or not tf.as_dtype(container.dtype).is_floating:
            return
        path = variable.path if isinstance(variable, KERAS_VARIABLE) else variable.name.partition(":")[0]
        name = next(each for each in _spellings(path) if each not in self._names)
        kind, last = type(layer).__name__ if layer else "", path.rpartition("/")[2]
        equation = layer.equation if isinstance(layer, keras.layers.EinsumDense) else ""
        layout = layout_of(kind, last, container.shape, equation)
        is_trained = role == "parameter" and bool(variable.trainable)
        tensor = RecordedTensor(name, tf.as_dtype(container.dtype).name, layout.piece, role, kind, is_trained)
        self._names.add(name)
        self._of[id(container)] = Held(container, layout, tensor)
        self.held.append(self._of[id(container)])


def _spellings(path: str) -> Iterator[str]:
    yield path
    number = 2
    while True:
        yield f"{path}#{number}"
        number += 1


def replica_id() -> int:
    """Returns the replica whose code runs; 0 outside of a strategy."""
    context = tf.distribute.get_replica_context()
    found = tf.get_static_value(context.replica_id_in_sync_group) if context else None
    return 0 if found is None else int(found)

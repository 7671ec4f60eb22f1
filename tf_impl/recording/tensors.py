"""The tensors of a script: the variables of the models that it trains, and of its optimizers."""

import dataclasses
import itertools
import operator
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from samestep.common.steps.keras.variable_layout import KerasLayout, layout_of
from samestep.common.steps.record import FOLLOWER, RecordedTensor
from samestep.tf_impl.plain_variables import plain_variables

KERAS_VARIABLE: type = keras.Variable.__bases__[0]
"""The class of the variables that layers hold. Before Keras 3.7, that is not keras.Variable but its base class."""


@dataclasses.dataclass(frozen=True, eq=False)
class TrackedTensor:
    """A variable that is recorded. It is not kept alive.

    Attributes:
        made: TensorFlow's variable; under a strategy, that of all replicas.
        layout: The layout in which it is projected.
        tensor: Its entry in the header.
        key: The id of the variable, as long as it is there.
    """

    made: weakref.ref[Any]
    layout: KerasLayout
    tensor: RecordedTensor
    key: int

    @property
    def container(self) -> Any:
        """TensorFlow's variable; None once the script has deleted it."""
        return self.made()

    def of_replica(self, replica: int) -> Any:
        """Returns the variable of one replica."""
        found = tf.distribute.get_strategy().experimental_local_results(self.container)
        return found[min(replica, len(found) - 1)]  # a network that no strategy mirrors has one


def container_of(variable: Any) -> Any:
    """Returns TensorFlow's variable.

    Args:
        variable: A variable of Keras or TensorFlow.
    """
    return variable._value if isinstance(variable, KERAS_VARIABLE) else variable


class TensorTable:
    """All tensors seen so far, in the order of the models. Tensors of networks that follow these come last."""

    def __init__(self) -> None:
        """Starts without tensors."""
        self.held: list[TrackedTensor] = []
        self._of: dict[int, TrackedTensor] = {}
        self._names: set[str] = set()
        self._updated, self._idle = set[int](), dict[int, TrackedTensor]()
        self._networks, self._num_followers = list[list[TrackedTensor]](), 0

    def add_model(self, model: keras.layers.Layer) -> None:
        """Adds all float variables of a model."""
        for layer, variable, role in _variables_of(model):
            self._add(variable, layer, role)

    def forget_deleted(self) -> None:
        """Forgets the variables that the script has deleted, whose ids other variables may get."""
        gone = [each for each in {*self._of.values(), *self._idle.values()} if each.container is None]
        self._forget([each for each in gone if self._of.get(each.key) is each])
        for each in gone:
            self._idle.pop(each.key, None)
            self._updated.discard(each.key)
        self._networks = [left for each in self._networks if (left := [held for held in each if held not in gone])]

    def add_followers(self, models: Iterable[keras.layers.Layer], own: Sequence[Any]) -> None:
        """Adds networks that no optimizer updates. A network that an optimizer updates after all is removed from them.

        Args:
            models: The networks.
            own: The variables that an optimizer is about to update.
        """
        ids = {id(container_of(each)) for each in own}
        for network in [each for each in self._networks if any(held.key in ids for held in each)]:
            self._networks.remove(network)
            self._forget(network)
        for model in models:
            # Buffers last, as in torch.
            variables = sorted(_variables_of(model), key=operator.itemgetter(2), reverse=True)
            self._follow([(variable, layer, None) for layer, variable, _ in variables])

    def of_optimizer(self, variables: Sequence[Any], averages: Iterable[tuple[Any, Any]] = ()) -> list[TrackedTensor]:
        """Returns the tensors that an optimizer updates, and those that no optimizer updates.

        Args:
            variables: The variables of the optimizer.
            averages: Some of them, each with the average that the optimizer keeps of it.
        """
        for variable in variables:
            self._add(variable, None, "parameter")
        own = {id(container_of(variable)): self._of.get(id(container_of(variable))) for variable in variables}
        self._updated |= own.keys()
        pairs = [(average, own.get(id(container_of(variable)))) for variable, average in averages]
        self._follow([(average, None, held.layout) for average, held in pairs if average is not None and held])
        self.held.sort(key=lambda each: each.tensor.role == FOLLOWER)
        return [each for each in self.held if each.key in own or not each.tensor.is_trained]

    def _follow(self, found: Sequence[tuple[Any, keras.layers.Layer | None, KerasLayout | None]]) -> None:
        """Adds the variables of one network, each with its layer and its layout, unless some are updated or follow already."""
        known = [self._of[key] for variable, *_ in found if (key := id(container_of(variable))) in self._of]
        is_taken = any(each.key in self._updated or each.tensor.role == FOLLOWER for each in known)
        if is_taken or not found:
            return
        self._forget(known)  # it was called in training before an optimizer has updated what it follows
        self._idle |= {each.key: each for each in known}
        self._num_followers += 1
        first = f"{FOLLOWER}{self._num_followers if self._num_followers > 1 else ''}."
        before = len(self.held)
        for variable, layer, layout in found:
            self._add(variable, layer, FOLLOWER, first, layout)
        self._networks.append(self.held[before:])

    def _forget(self, network: Sequence[TrackedTensor]) -> None:
        self.held = [each for each in self.held if each not in network]
        for each in network:
            del self._of[each.key]

    def _add(
        self,
        variable: Any,
        layer: keras.layers.Layer | None,
        role: str,
        first: str = "",
        layout: KerasLayout | None = None,
    ) -> None:
        container = container_of(variable)
        if id(container) in self._of or container is None or not tf.as_dtype(container.dtype).is_floating:
            return
        if role != FOLLOWER and (known := self._idle.pop(id(container), None)):
            self._of[id(container)] = known  # under the name that the record may have of it
            self.held.append(known)
            return
        path = variable.path if isinstance(variable, KERAS_VARIABLE) else variable.name.partition(":")[0]
        numbered = (f"{first}{path}#{number}" for number in itertools.count(2))
        name = next(each for each in itertools.chain([first + path], numbered) if each not in self._names)
        kind, last = type(layer).__name__ if layer else "", path.rpartition("/")[2]
        equation = layer.equation if isinstance(layer, keras.layers.EinsumDense) else ""
        layout = layout or layout_of(kind, last, container.shape, equation)
        is_trained = role == "parameter" and bool(variable.trainable)
        tensor = RecordedTensor(name, tf.as_dtype(container.dtype).name, layout.piece, role, kind, is_trained)
        self._names.add(name)
        self._of[id(container)] = TrackedTensor(weakref.ref(container), layout, tensor, id(container))
        self.held.append(self._of[id(container)])


def _variables_of(model: keras.layers.Layer) -> Iterator[tuple[keras.layers.Layer, Any, str]]:
    """Yields the variables of a model with their layers and roles."""
    for layer in model._flatten_layers():
        if not isinstance(layer, keras.metrics.Metric):
            yield from ((layer, each, "parameter") for each in layer._trainable_variables)
            yield from ((layer, each, "parameter") for _, each in plain_variables(layer))  # a script may train them
            yield from ((layer, each, "buffer") for each in layer._non_trainable_variables)


def replica_id() -> int:
    """Returns the replica whose code runs; 0 outside of a strategy."""
    context = tf.distribute.get_replica_context()
    found = tf.get_static_value(context.replica_id_in_sync_group) if context else None
    return 0 if found is None else int(found)

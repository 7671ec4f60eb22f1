"""Records what every layer of a Keras model, or every module of a tf.Module, computes."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from samestep.common.workload.models.layer import LayerTensor, ParameterLayer

WHOLE = ("MultiHeadAttention", "GroupQueryAttention", "LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional")
"""Layers that are recorded as one, whatever layers they are made of."""
SETTINGS = (
    *("epsilon", "momentum", "axis", "kernel_size", "pool_size", "strides", "padding", "dilation_rate", "groups"),
    *("data_format", "num_heads", "key_dim", "negative_slope", "alpha", "units", "mask_zero", "use_bias"),
)
"""The attributes of layers that decide what they compute."""
_ROLES = {
    **{"kernel": "kernel", "depthwise_kernel": "kernel", "bias": "bias", "recurrent_kernel": "recurrent"},
    **{"embeddings": "table", "gamma": "scale", "beta": "bias"},
}
_BUFFER_ROLES = {"moving_mean": "running_mean", "moving_variance": "running_var"}


@dataclasses.dataclass(eq=False)
class Call:
    """One call of a layer, or of the activation that it applies at its end.

    Attributes:
        name: The path of the layer.
        kind: The name of its class, or of the activation.
        settings: What decides the result.
        inputs: The tensors that it was given.
        output: Its first result.
    """

    name: str
    kind: str
    settings: Mapping[str, object]
    inputs: list[tf.Tensor]
    output: tf.Tensor


class LayerRecorder:
    """Records the calls of a model."""

    def __init__(self, model: Any) -> None:
        """Records nothing yet.

        Args:
            model: A Keras model or a tf.Module.
        """
        self.calls: list[Call] = []
        self.started: list[Any] = []
        self._model = model
        self._stack: list[bool] = []

    def call(self, layer: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls a layer and records it, unless a layer around it is recorded as one.

        Args:
            layer: The layer or module.
            function: Its own call.
            args: The args of the call.
            kwargs: The kwargs of the call.
        """
        if not any(layer is other for other in self.started):
            self.started.append(layer)
        inside = any(self._stack)
        self._stack.append(is_whole(layer))
        activations: list[Call] = []
        try:
            with self._opened(layer, activations):
                output = function(*args, **kwargs)
        finally:
            self._stack.pop()
        first = output[0] if isinstance(output, list | tuple) and output else output
        if is_whole(layer) and not inside and tf.is_tensor(first) and first.dtype.is_floating:
            given = [each for each in (*args, *kwargs.values()) if tf.is_tensor(each)]
            kernel = activations[0].inputs[0] if activations else first
            self.calls.append(Call(self.path(layer), _kind(layer), settings(layer), given, kernel))
            self.calls += activations
        return output

    @contextlib.contextmanager
    def _opened(self, layer: Any, found: list[Call]) -> Iterator[None]:
        """Records the activation that a layer applies at its end as a call of its own."""
        plain = getattr(layer, "activation", None)
        is_opened = isinstance(layer, keras.layers.Layer) and _kind(layer) not in WHOLE and callable(plain)
        if not is_opened or plain is keras.activations.linear or isinstance(layer, keras.layers.Activation):
            yield
            return

        def activation(x: tf.Tensor) -> tf.Tensor:
            y = plain(x)
            name = _name_of(plain)
            found.append(Call(f"{self.path(layer)}/{name}", name, {"is_activation": True}, [x], y))
            return y

        object.__setattr__(layer, "activation", activation)
        try:
            yield
        finally:
            object.__setattr__(layer, "activation", plain)

    def path(self, layer: Any) -> str:
        """Returns the path of a layer in the model."""
        return path_of(layer, self._model)


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _kind(layer: Any) -> str:
    return _name_of(layer.activation) if isinstance(layer, keras.layers.Activation) else type(layer).__name__


def is_whole(layer: Any) -> bool:
    """Returns whether a layer is recorded, and not those that it is made of."""
    if type(layer).__name__ in WHOLE:
        return True
    inner = layer._flatten_layers(include_self=False) if isinstance(layer, keras.layers.Layer) else layer.submodules
    return not any(True for _ in inner)


def path_of(layer: Any, model: Any) -> str:
    """Returns the path of a layer in the model.

    Args:
        layer: The layer.
        model: The model.
    """
    if not isinstance(layer, keras.layers.Layer):
        return layer.name
    return (layer.path or layer.name).removeprefix(f"{model.name}/")


def settings(layer: Any) -> dict[str, object]:
    """Returns the attributes of a layer that decide what it computes, as JSON can hold them."""
    found: dict[str, object] = {"is_activation": True} if isinstance(layer, keras.layers.Activation) else {}
    for name in SETTINGS:
        value = getattr(layer, name, None)
        if isinstance(value, bool | int | float | str | list | tuple):
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


@contextlib.contextmanager
def recording(model: Any) -> Iterator[LayerRecorder]:
    """Records the calls of a model.

    Args:
        model: A Keras model or a tf.Module.
    """
    recorder = LayerRecorder(model)
    kinds: set[type] = {keras.layers.Layer}
    if not isinstance(model, keras.Model):
        modules = (model, *model.submodules)
        kinds |= {type(each) for each in modules if callable(each) and not isinstance(each, keras.layers.Layer)}
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(mock.patch.object(kind, "__call__", _recorded(recorder, kind.__call__)))
        yield recorder


def _recorded(recorder: LayerRecorder, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        return recorder.call(layer, functools.partial(plain, layer), args, kwargs)

    return call


def find_layers(model: Any, started: list[Any], neutral: Mapping[int, str]) -> tuple[ParameterLayer, ...]:
    """Returns the layers of a model that hold parameters, in the order of execution.

    Args:
        model: A Keras model or a tf.Module.
        started: Its layers in the order in which they were first called.
        neutral: The neutral name of each variable, by its id.
    """
    every = _flatten(model)
    order = [*started, *(layer for layer in every if not any(layer is other for other in started))]
    wholes = [layer for layer in every if type(layer).__name__ in WHOLE]
    found, seen = [], set[int]()
    for layer in order:
        around = [whole for whole in wholes if any(layer is inner for inner in _flatten(whole))]
        call = path_of((around or [layer])[0], model)
        params, buffers = {}, {}
        for variable in _own_variables(layer):
            if id(_value(variable)) in seen or id(_value(variable)) not in neutral:
                continue
            seen.add(id(_value(variable)))
            name = neutral[id(_value(variable))]
            held = LayerTensor(name, name, tuple(variable.shape), tuple(range(len(variable.shape))))
            last = variable.name.rpartition("/")[2].partition(":")[0]
            if variable.trainable or any(variable is each for each in _made_to_train(layer)):
                params[last] = held  # a frozen one as well
            elif last in _BUFFER_ROLES:
                buffers[_BUFFER_ROLES[last]] = held
        found += _layers(path_of(layer, model), call, _kind(layer), params, buffers)
    return tuple(found)


def _layers(
    name: str, call: str, kind: str, params: Mapping[str, LayerTensor], buffers: Mapping[str, LayerTensor]
) -> Iterator[ParameterLayer]:
    known = {_ROLES[last]: held for last, held in params.items() if last in _ROLES}
    if known or buffers:
        yield ParameterLayer(name=name, kind=kind, call=call, params=known, buffers=dict(buffers))
    for last, held in params.items():
        if last not in _ROLES:
            yield ParameterLayer(name=f"{name}/{last}", kind="Parameter", call=call, params={"value": held})


def _value(variable: Any) -> Any:
    return getattr(variable, "value", variable) if not isinstance(variable, tf.Variable) else variable


def _flatten(layer: Any) -> list[Any]:
    if isinstance(layer, keras.layers.Layer):
        return list(layer._flatten_layers())
    return [layer, *layer.submodules]


def _made_to_train(layer: Any) -> list[Any]:
    return layer._trainable_variables if isinstance(layer, keras.layers.Layer) else []


def _own_variables(layer: Any) -> list[Any]:
    if isinstance(layer, keras.layers.Layer):
        return [*layer._trainable_variables, *layer._non_trainable_variables]
    return [value for value in vars(layer).values() if isinstance(value, tf.Variable)]

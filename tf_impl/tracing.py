"""Records what every layer of a Keras model, or every module of a tf.Module, computes."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from samestep.common.porting.model_trace import IS_FUNCTION, MOST_ELEMENTS
from samestep.common.porting.traced_call import TracedCall, numbered
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.layer import Stilled
from samestep.tf_impl.features.applied import dropped_by
from samestep.tf_impl.upstream import watching_operations

_CONTAINERS = ("Sequential", "Functional", "Model")
"""Keras' own classes that do nothing but call layers."""
_UNSEEN = ("Identity", "StopGradient", "Cast", "ReadVariableOp")
"""Operations that return their input."""
WHOLE = (
    keras.layers.MultiHeadAttention,
    keras.layers.GroupQueryAttention,
    keras.layers.RNN,
    keras.layers.Bidirectional,
)
"""Layers that are recorded as one call, although they are made of other layers."""
SETTINGS = (
    *("epsilon", "momentum", "axis", "kernel_size", "pool_size", "strides", "padding", "dilation_rate", "groups"),
    *("data_format", "num_heads", "key_dim", "negative_slope", "alpha", "max_value", "units", "mask_zero", "use_bias"),
)
"""The attributes of layers that decide what they compute."""


Call = TracedCall[tf.Tensor]


class LayerRecorder:
    """Records the calls of a model."""

    def __init__(self, model: Any) -> None:
        """Starts without any calls.

        Args:
            model: A Keras model or a tf.Module.
        """
        self.calls: list[Call] = []
        self.started: list[Any] = []
        self.stilled: dict[str, Stilled] = {}
        self._model = model
        self._stack: list[tuple[Any, bool, bool]] = []

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
        masks = [mask for each in args[:1] if (mask := getattr(each, "_keras_mask", None)) is not None]
        inside = any(whole for _, whole, _ in self._stack)
        is_own = not type(layer).__module__.startswith("keras.") or type(layer).__name__ in _CONTAINERS
        around = any(not seen for *_, seen in self._stack)
        self._stack.append((layer, is_whole(layer), is_own and not around))
        activations: list[Call] = []
        try:
            with self._opened(layer, activations):
                output = function(*args, **kwargs)
        finally:
            self._stack.pop()
        first = output[0] if isinstance(output, list | tuple) and output else output
        if is_whole(layer) and not inside and tf.is_tensor(first) and first.dtype.is_floating:
            given = [each for each in (*args, *kwargs.values()) if tf.is_tensor(each)] + masks
            kernel = activations[0].inputs[0] if activations else first
            self.calls.append(Call(self.path(layer), kind_of(layer), settings(layer), given, kernel))
            self.calls += activations
        return output

    def saw(self, kind: str, operands: Sequence[tf.Tensor], results: Sequence[tf.Tensor]) -> None:
        """Records an operation between layers, or in one that is not Keras' own.

        Args:
            kind: The type of the operation.
            operands: Its operands.
            results: Its results.
        """
        layer, _, is_opened = self._stack[-1] if self._stack else (None, True, False)
        for each in results if is_opened and kind not in _UNSEEN else ():
            if each.dtype.is_floating and 1 < each.shape.num_elements() <= MOST_ELEMENTS:
                name = f"{self.path(layer)}/{kind}()" if layer is not self._model else f"{kind}()"
                self.calls.append(Call(name, kind, {IS_FUNCTION: True}, [], each))

    def drew(self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> None:
        """Records a function that is held still, at its place among the calls; it passes its input on.

        Args:
            function: The function.
            args: Its positional arguments.
            named: Its keyword arguments.
        """
        layer, _, is_opened = self._stack[-1] if self._stack else (None, True, False)
        stilled = dropped_by(function, args, named)
        if stilled is not None and is_opened:
            where = "" if layer is self._model else f"{self.path(layer)}/"
            name = numbered(f"{where}{stilled.feature}()", self.stilled)
            self.stilled[name] = stilled
            given = tf.convert_to_tensor(args[0] if args else named["x"])
            self.calls.append(Call(name, stilled.feature, {IS_FUNCTION: False}, [], given))

    def stilled_by(self, layers: Mapping[int, Stilled]) -> dict[str, Stilled]:
        """Returns what was held still, by path: the given layers, by the id of each, and functions that would draw."""
        return {self.path(each): layers[id(each)] for each in self.started if id(each) in layers} | self.stilled

    @contextlib.contextmanager
    def _opened(self, layer: Any, found: list[Call]) -> Iterator[None]:
        """Records the activation that a layer applies at its end as a separate call."""
        plain = vars(layer).get("activation")  # a property, as of recurrent layers, cannot be set
        is_opened = isinstance(layer, keras.layers.Layer) and callable(plain)
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


def kind_of(layer: Any) -> str:
    """Returns what a layer is: the name of its class, or of the function that it applies."""
    return _name_of(layer.activation) if isinstance(layer, keras.layers.Activation) else type(layer).__name__


def is_whole(layer: Any) -> bool:
    """Returns whether a layer is recorded, and not those that it is made of."""
    if isinstance(layer, WHOLE):
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
        return getattr(layer, "name", type(layer).__name__)  # a module that does not call super().__init__() has none
    return (layer.path or layer.name).removeprefix(f"{model.name}/")


def settings(layer: Any) -> dict[str, object]:
    """Returns the attributes of a layer that decide what it computes, in a form that JSON can hold."""
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
        stack.enter_context(watching_operations(recorder.saw))
        stack.enter_context(DRAWS.watched(recorder.drew))
        yield recorder


def _recorded(recorder: LayerRecorder, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        return recorder.call(layer, functools.partial(plain, layer), args, kwargs)

    return call

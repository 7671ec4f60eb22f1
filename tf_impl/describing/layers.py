"""Finds the layers of a Keras model that hold parameters, in the order of execution."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from samestep.common.workload.models.layer import LayerTensor, ParameterLayer
from samestep.tf_impl.features.applied import BUFFER_ROLES
from samestep.tf_impl.tracing import WHOLE, kind_of, path_of

_ROLES = {
    **{"kernel": "kernel", "depthwise_kernel": "kernel", "bias": "bias", "recurrent_kernel": "recurrent"},
    **{"embeddings": "table", "gamma": "scale", "scale": "scale", "beta": "bias"},
}

_POINTWISE = "pointwise_kernel"


def find_layers(model: Any, started: list[Any], neutral: Mapping[int, str]) -> tuple[ParameterLayer, ...]:
    """Returns the layers of a model that hold parameters, in the order of execution.

    Args:
        model: A Keras model or a tf.Module.
        started: Its layers in the order in which they were first called.
        neutral: The neutral name of each variable, by its id.
    """
    every = _flatten(model)
    order = [*started, *(layer for layer in every if not any(layer is other for other in started))]
    wholes = [layer for layer in every if isinstance(layer, WHOLE)]
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
            elif last in BUFFER_ROLES:
                buffers[BUFFER_ROLES[last]] = held
        found += _layers(path_of(layer, model), call, kind_of(layer), params, buffers)
    return tuple(found)


def _layers(
    name: str, call: str, kind: str, params: Mapping[str, LayerTensor], buffers: Mapping[str, LayerTensor]
) -> Iterator[ParameterLayer]:
    if _POINTWISE in params:  # two convolutions in one layer, which torch has as two
        first = {"kernel": params["depthwise_kernel"]}
        yield ParameterLayer(
            name=f"{name}/depthwise", kind=kind.replace("Separable", "Depthwise"), call=call, params=first
        )
        second = {role: params[last] for last, role in ((_POINTWISE, "kernel"), ("bias", "bias")) if last in params}
        yield ParameterLayer(name=f"{name}/pointwise", kind=kind.replace("Separable", ""), call=call, params=second)
        return
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

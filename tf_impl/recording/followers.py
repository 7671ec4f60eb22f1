"""Networks that have the shapes of what is trained and that no optimizer updates: averages, teachers and target networks.

A script may never train on them, and yet they may be what it keeps; nobody else would see that they follow the weights in
another way.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend import name_scope

from samestep.common.objects import objects_of
from samestep.tf_impl.recording.tensors import container_of


def find_followers(own: Sequence[Any], called: Collection[Any]) -> list[Any]:
    """Returns the layers that have the shapes of a part of a layer that is trained, and of which nothing is trained.

    They are in no other layer, or in one that is not called in training itself, as where the `train_step` of a model calls one of
    its layers and has another one follow it. A layer whose variables have no values yet does not count.

    Args:
        own: The variables that are trained.
        called: The layers that are called in training.
    """
    layers = [each for each in objects_of(keras.layers.Layer) if "_layers" in vars(each)]
    inner = {id(each) for layer in layers for each in (*vars(layer)["_layers"], vars(layer).get("_functional"))}
    wanted = set(map(_id_of, own))
    trained, idle, waiting = list[Any](), list[Any](), [each for each in layers if id(each) not in inner]
    while waiting:
        layer = waiting.pop(0)
        is_trained = _has_any(layer, wanted)
        (trained if is_trained else idle).append(layer)
        if is_trained and layer not in called:
            waiting += vars(layer)["_layers"]
    ready = [each for each in idle if (weights := [*_weights(each)]) and all(map(_has_value, weights))]
    if not ready:
        return []
    parts = (part for each in trained for part in each._flatten_layers() if _has_any(part, wanted))
    shapes = {_shapes(_weights(part)) for part in parts}
    return [each for each in ready if _shapes(_weights(each)) in shapes]


def averages_of(optimizer: Any, own: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields the variables that an optimizer updates, each with the average that it keeps of it (`use_ema`).

    Args:
        optimizer: Keras', which is about to step; None where the script has none.
        own: What it updates.
    """
    inner = optimizer and vars(optimizer).get("inner_optimizer", optimizer)
    if not own or not inner or not inner.use_ema:
        return
    if not optimizer.built:
        with name_scope(optimizer.name, caller=optimizer):
            optimizer.build([*own])  # as its step would
    yield from zip(inner._trainable_variables, inner._model_variables_moving_average, strict=True)


def _weights(layer: Any) -> Iterator[Any]:
    for each in layer._flatten_layers():
        yield from vars(each).get("_trainable_variables", ())


def _has_any(layer: Any, wanted: Collection[int]) -> bool:
    return any(_id_of(each) in wanted for each in _weights(layer))


def _id_of(variable: Any) -> int:
    return id(container_of(variable))


def _has_value(variable: Any) -> bool:
    container = container_of(variable)
    with tf.init_scope():
        return container is not None and bool(container.is_initialized())


def _shapes(variables: Iterable[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each.shape) for each in variables)

"""Networks that have the shapes of what is trained and that no optimizer updates: averages, teachers and target networks.

A script may never train on them, and yet they may be what it keeps; nobody else would see that they follow the weights in
another way.
"""

import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend import name_scope

from samestep.tf_impl.recording.tensors import container_of


def find_followers(own: Sequence[Any]) -> list[Any]:
    """Returns the layers that no other contains, and that have the shapes of a part of a layer that is trained.

    The oldest generation of objects comes first, as in torch. A layer whose variables have no values yet does not count.

    Args:
        own: The variables that are trained.
    """
    objects = [each for generation in (2, 1, 0) for each in gc.get_objects(generation)]
    kinds = {kind for kind in {type(each) for each in objects} if issubclass(kind, keras.layers.Layer)}
    layers = [each for each in objects if type(each) in kinds and "_layers" in vars(each)]
    inner = {id(each) for layer in layers for each in (*vars(layer)["_layers"], vars(layer).get("_functional"))}
    roots = [(each, [*_weights(each)]) for each in layers if id(each) not in inner]
    wanted = set(map(_id_of, own))
    idle = [(each, weights) for each, weights in roots if wanted.isdisjoint(map(_id_of, weights))]
    waiting = [(each, weights) for each, weights in idle if weights and all(map(_has_value, weights))]
    if not waiting:
        return []
    without = {id(each) for each, _ in idle}
    parts = (part for root, _ in roots if id(root) not in without for part in root._flatten_layers())
    trained = {_shapes(_weights(part)) for part in parts}
    return [each for each, weights in waiting if _shapes(weights) in trained]


def averages_of(optimizer: Any, own: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields the variables that an optimizer updates, each with the average that it keeps of it (`use_ema`).

    Args:
        optimizer: Keras', which is about to step; None where the script has none.
        own: What it updates.
    """
    inner = optimizer and vars(optimizer).get("inner_optimizer", optimizer)
    if not inner or not inner.use_ema:
        return
    if not optimizer.built:
        with name_scope(optimizer.name, caller=optimizer):
            optimizer.build([*own])  # as its step would
    yield from zip(inner._trainable_variables, inner._model_variables_moving_average, strict=True)


def _weights(layer: Any) -> Iterator[Any]:
    for each in layer._flatten_layers():
        yield from vars(each).get("_trainable_variables", ())


def _id_of(variable: Any) -> int:
    return id(container_of(variable))


def _has_value(variable: Any) -> bool:
    container = container_of(variable)
    with tf.init_scope():
        return container is not None and bool(container.is_initialized())


def _shapes(variables: Iterable[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each.shape) for each in variables)

"""Variables that layers of Keras hold without Keras' knowledge, so it neither trains nor saves them."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf


def plain_variables(layer: Any) -> Iterator[tuple[str, tf.Variable]]:
    """Yields the variables that a layer is meant to train and Keras does not train, each with its attribute.

    Args:
        layer: A layer of Keras.
    """
    for name, value in vars(layer).items():
        if layer.trainable and not name.startswith("_self_"):  # attributes of TensorFlow, which list the others again
            yield from ((name, variable) for variable in _within(value) if variable.trainable)


def _within(value: object) -> Iterator[tf.Variable]:
    """Yields the variables in an attribute that are not those of Keras, including those in a list or a dict."""
    if isinstance(value, tf.Variable):
        yield value
    elif isinstance(value, dict):
        yield from _within([*value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _within(each)

"""Dropout whose mask depends on the examples alone, not on the device that computes them; and switching off a user's dropout."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from samestep.common.features import Features
from samestep.common.features.dropout.feature import rate_of
from samestep.common.features.dropout.masks import keeps
from samestep.common.workload.draws import DRAWS
from samestep.common.workload.models.layer import Stilled
from samestep.common.workload.models.spec import ModelSpec
from samestep.tf_impl.features.draws import STILL


class Dropout:
    """Keeps some elements of each example, multiplied by 1 / (1 - rate); the identity in evaluation, and at a rate of 0.

    Attributes:
        part: Returns which of the equal, contiguous parts of an example's activations it is given; 0 if it is given all of them.
    """

    def __init__(self, rate: float, number: int) -> None:
        self.rate, self.number = rate, number
        self.part: Callable[[], int] = lambda: 0

    def __call__(self, x: tf.Tensor, keys: tf.Tensor | None) -> tf.Tensor:
        """Drops elements: [batch, ...] -> [batch, ...].

        Args:
            x: The activations.
            keys: The key of each example; None in evaluation.
        """
        if keys is None or not self.rate:
            return x
        first, size = self.part() * math.prod(x.shape[1:]), math.prod(x.shape[1:])
        elements = tf.reshape(tf.range(first, first + size, dtype=tf.int64), (1, *x.shape[1:]))
        of_example = tf.reshape(keys, (-1, *[1] * (x.shape.rank - 1)))
        kept = keeps(of_example, elements, self.number, self.rate, tf.bitwise.right_shift)
        return tf.where(kept, x * tf.constant(1 / (1 - self.rate), x.dtype), tf.constant(0, x.dtype))


def dropout(spec: ModelSpec, number: int) -> Dropout:
    """Returns the layer, which is the identity if nothing is dropped.

    Args:
        spec: The spec of the model.
        number: The number of this dropout in the model, from 0.
    """
    return Dropout(rate_of(spec), number)


def prepare(features: Features) -> None:
    """Prepares the functions that draw random numbers in a forward pass; call it before the user's file is imported."""
    if features.dropout is False:
        DRAWS.install(STILL)


def switch(layers: Iterable[Any], features: Features) -> None:
    """Switches off every dropout of a user's model if asked to, and replaces its other random draws by their means.

    Args:
        layers: The layers of the model.
        features: The request.
    """
    DRAWS.are_still = False
    if features.dropout is False:
        held_still(layers)


def held_still(layers: Iterable[Any]) -> dict[int, Stilled]:
    """Switches off every dropout of a user's model, and replaces its other random draws by their means.

    Args:
        layers: The layers of the model.

    Returns:
        What each layer would drop in training, by its id.
    """
    DRAWS.are_still, found = True, {}
    for layer in _dropping(layers):
        is_channels = type(layer).__name__.startswith("Spatial")
        shape = f" of {layer.noise_shape}" if layer.noise_shape is not None else ""
        found[id(layer)] = Stilled("dropout", "channels" if is_channels else f"elements{shape}", float(layer.rate))
        layer.rate = 0.0
    return found


def _dropping(layers: Iterable[Any]) -> list[Any]:
    import keras  # here: our own models do without it

    return [each for each in layers if isinstance(each, keras.layers.Dropout)]


def dropped_by(function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> Stilled | None:
    """Returns what a function that draws would drop if it were not replaced; None if it drops nothing.

    Args:
        function: The function.
        args: Its positional arguments.
        named: Its keyword arguments.
    """
    if "dropout" not in function.__name__:
        return None
    given = inspect.signature(function).bind(*args, **named).arguments
    noise, whole = given.get("noise_shape"), tuple(given["x"].shape)
    shape = whole if noise is None else tuple(map(int, noise))
    return Stilled("dropout", "elements" if shape == whole else f"elements of {shape}", float(given["rate"]))

"""Clipping: the gradient of the whole batch is scaled down to a largest norm, after the exchange."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from samestep.common.techniques import Techniques
from samestep.tf_impl.step import Gradient

AddUp = Callable[[Sequence[tf.Tensor]], tf.Tensor]
"""The squares of the norms of gradients -> the square of the norm of the whole gradient."""


def transform(gradients: Sequence[Gradient], techniques: Techniques, add_up: AddUp = tf.add_n) -> Sequence[Gradient]:
    """Clips the gradient of the whole batch if a run asks for it.

    Args:
        gradients: The gradient of every parameter, summed over all devices.
        techniques: The techniques of the run.
        add_up: Adds up squares, where a device has parts of some gradients.
    """
    return gradients if techniques.clip_norm is None else clip(gradients, techniques.clip_norm, add_up)


def clip(gradients: Sequence[Gradient], bound: float, add_up: AddUp = tf.add_n) -> list[Gradient]:
    """Scales gradients down, so the whole gradient has at most a given norm; rows stay rows.

    Args:
        gradients: The gradient of every parameter, summed over all devices.
        bound: The largest norm allowed.
        add_up: As in `transform`.
    """
    norm = tf.sqrt(add_up([_squared_norm(gradient) for gradient in gradients]))
    factor = tf.minimum(bound / norm, 1.0)
    return [
        tf.IndexedSlices(g.values * factor, g.indices, g.dense_shape) if isinstance(g, tf.IndexedSlices) else g * factor
        for g in gradients
    ]


def _squared_norm(gradient: Gradient) -> tf.Tensor:
    """Returns the square of a norm, with rows of equal id summed; `tf.clip_by_global_norm` (2.21) counts each separately."""
    if isinstance(gradient, tf.IndexedSlices):
        ids, places = tf.unique(gradient.indices)
        gradient = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids))
    return tf.reduce_sum(gradient * gradient)

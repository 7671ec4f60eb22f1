"""Clipping: the gradient of the whole batch is scaled down to a largest norm, after the exchange."""

from collections.abc import Sequence

import tensorflow as tf

from samestep.common.techniques import Techniques
from samestep.tf_impl.step import Gradient


def transform(gradients: Sequence[Gradient], techniques: Techniques) -> Sequence[Gradient]:
    """Clips the gradient of the whole batch if a run asks for it.

    Args:
        gradients: The gradient of every parameter, summed over all devices.
        techniques: The techniques of the run.
    """
    return gradients if techniques.clip_norm is None else clip(gradients, techniques.clip_norm)


def clip(gradients: Sequence[Gradient], bound: float) -> list[Gradient]:
    """Scales gradients down, so the whole gradient has at most a given norm; rows stay rows.

    Args:
        gradients: The gradient of every parameter, summed over all devices.
        bound: The largest norm allowed.
    """
    norm = tf.sqrt(tf.add_n([_squared_norm(gradient) for gradient in gradients]))
    factor = tf.minimum(bound / norm, 1.0)
    return [
        tf.IndexedSlices(g.values * factor, g.indices, g.dense_shape) if isinstance(g, tf.IndexedSlices) else g * factor
        for g in gradients
    ]


def _squared_norm(gradient: Gradient) -> tf.Tensor:
    """Rows of equal id count as their sum; `tf.clip_by_global_norm` (2.21) counts each on its own."""
    if isinstance(gradient, tf.IndexedSlices):
        ids, places = tf.unique(gradient.indices)
        gradient = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids))
    return tf.reduce_sum(gradient * gradient)

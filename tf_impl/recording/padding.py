"""Finds what of the inputs of a call is not data: the padding of texts. The mirror of torch_impl/recording/step/padding.py."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from samestep.common.steps.argument_names import padding_named


def padding_of(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[tf.Tensor | None, Any]:
    """Returns what the mask of a call does not hide, and the positions of a call; None for what it does not have.

    Args:
        arguments: The arguments of the model, of which a mapping may name its parts.
        keywords: The keywords of the model.
    """
    masks, places = padding_named(arguments, keywords)
    usable = [each for each in masks if isinstance(each, tf.Tensor | np.ndarray) and len(each.shape or ()) == 2]
    return (tf.cast(usable[0], tf.bool) if usable else None), places


def without_padding(values: tf.Tensor, shown: tf.Tensor, are_positions: bool) -> tf.Tensor:
    """Returns an input whose padding is zeros behind its row, so neither its length nor its side changes the hash.

    Args:
        values: The input.
        shown: What its mask does not hide.
        are_positions: Whether the numbers count the places of a row, which continue behind what is shown.
    """
    if values.dtype.is_floating or not values.shape.is_compatible_with(shown.shape):
        return values

    def moved() -> tf.Tensor:
        is_in_front, is_padding = shown[:, -1:], ~shown
        if not are_positions:
            is_padding &= values == tf.where(is_in_front, values[:, :1], values[:, -1:])
        leading = tf.reduce_sum(tf.math.cumprod(tf.cast(is_padding, tf.int32), 1), 1, keepdims=True)
        size = tf.shape(values)[1]
        places = (tf.range(size) + leading * tf.cast(is_in_front, tf.int32)) % tf.maximum(size, 1)
        return tf.gather(tf.where(is_padding, tf.zeros_like(values), values), places, axis=1, batch_dims=1)

    if values.shape.is_fully_defined() and shown.shape.is_fully_defined():
        return moved()
    return tf.cond(tf.reduce_all(tf.equal(tf.shape(values), tf.shape(shown))), moved, lambda: values)

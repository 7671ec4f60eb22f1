"""The losses, summed over every target."""

from collections.abc import Callable, Mapping

import tensorflow as tf

from samestep.common.workload.declaration import CLASSES_FIRST

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(outputs, targets) -> a loss."""


def cross_entropy(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns the sum of -log softmax(logits)[target].

    Args:
        logits: [..., classes].
        targets: [...], classes.
    """
    return -tf.reduce_sum(_log_probabilities(logits, targets))


def _log_probabilities(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Gathers log softmax(logits)[target].

    By hand: tf.nn.sparse_softmax_cross_entropy_with_logits is silently wrong on class-sharded DTensors (2.21).
    """
    return tf.gather(tf.nn.log_softmax(logits), targets, batch_dims=targets.shape.rank)


def cross_entropy_classes_first(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns the sum of -log softmax(logits)[target].

    Args:
        logits: [batch, classes, ...].
        targets: [batch, ...], classes.
    """
    return cross_entropy(classes_last(logits), targets)


def classes_last(logits: tf.Tensor) -> tf.Tensor:
    """Moves the classes of [batch, classes, ...] behind all other dims."""
    return tf.transpose(logits, [0, *range(2, logits.shape.rank), 1])


def weighted_cross_entropy(logits: tf.Tensor, targets: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns the sum of -weight * log softmax(logits)[target].

    Args:
        logits: [..., classes].
        targets: "targets" [...], classes; "weight" [...], 0 for those that do not count.
    """
    return -tf.reduce_sum(_log_probabilities(logits, targets["targets"]) * targets["weight"])


def binary_cross_entropy(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns the sum of log(1 + exp(logit)) - target * logit.

    Args:
        logits: [batch].
        targets: [batch], 0 or 1.
    """
    labels = tf.cast(targets, logits.dtype)
    return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def mean_squared_error(outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns the sum of (output - target)^2.

    Args:
        outputs: [batch, outputs].
        targets: [batch, outputs], real numbers.
    """
    return tf.reduce_sum(tf.square(outputs - targets))


LOSSES = {
    "cross_entropy": cross_entropy,
    CLASSES_FIRST: cross_entropy_classes_first,
    "binary_cross_entropy": binary_cross_entropy,
    "mean_squared_error": mean_squared_error,
}

"""The loss of a user's model: their function, or the loss that the model returns."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from samestep.common.workload.declaration import RETURNED, Model
from samestep.common.workload.models.spec import ModelSpec
from samestep.common.workload.reductions import divisor_of, is_mean_of_own, metric_of, times
from samestep.tf_impl.models.losses import Loss
from samestep.tf_impl.models.user_model import declared


def loss_function(model: Model) -> Callable[[Any, tf.Tensor], tf.Tensor] | None:
    """Returns the function that computes losses from what a model returns: the user's or its own; None if it is ours.

    Args:
        model: The declaration.
    """
    if isinstance(model.loss, Mapping):
        return model.loss.get("tf")
    return _own_mean if model.loss == RETURNED else None


def _own_mean(outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns the mean over examples of the model's own loss, which was repeated for each of them."""
    return tf.reduce_mean(outputs)


def user_loss(spec: ModelSpec) -> Loss:
    """Returns the user's own loss, summed over what it returns."""
    function = loss_function(declared(spec))
    assert function is not None
    return lambda outputs, targets: tf.reduce_sum(function(outputs, targets)) * times(spec, targets.shape[0])


def user_mean_loss(spec: ModelSpec) -> Callable[[np.ndarray, np.ndarray], float]:
    """Returns the user's own loss as a metric of all held-out examples; NaN if it needs more than outputs."""
    loss = user_loss(spec)

    def of_all(outputs: np.ndarray, targets: np.ndarray) -> float:
        counted = divisor_of(spec, "tf", targets) if is_mean_of_own(spec) else 1
        return float(loss(tf.constant(outputs), tf.constant(targets))) * counted

    return metric_of(spec, "tf", of_all)

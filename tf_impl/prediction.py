"""Predicts held-out examples, each replica its share."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from samestep.common.batch import Chunk
from samestep.tf_impl.models import predictor
from samestep.tf_impl.models.inputs import as_inputs

Join = Callable[[Sequence[tf.Tensor]], np.ndarray]
"""Joins the predictions of this process's replicas and, in rank order, those of other processes."""
Predict = Callable[[np.ndarray], np.ndarray]
"""The inputs of a global batch -> its logits."""


def join_replicas(own: Sequence[tf.Tensor]) -> np.ndarray:
    """Joins the predictions of the replicas of the only process."""
    return np.concatenate([each.numpy() for each in own])


def build_prediction(
    strategy: tf.distribute.Strategy, model: Callable[[tf.Tensor], tf.Tensor], has_buffers: bool, join: Join
) -> Predict:
    """Makes the function that predicts.

    Args:
        strategy: The strategy whose replicas share the examples.
        model: The model.
        has_buffers: Whether replicas have their own buffers, which may differ; the first replica then predicts everything.
        join: Joins the shares.
    """
    predict = predictor(model)
    if has_buffers:
        alone = tf.function(predict, autograph=False)
        return lambda inputs: alone(as_inputs(inputs)).numpy()
    in_shares = tf.function(
        lambda x: strategy.experimental_local_results(strategy.run(predict, args=(x,))), autograph=False
    )

    def predict_shares(inputs: np.ndarray) -> np.ndarray:
        # The number of examples need not be a multiple of the replicas; the first examples are then appended once more.
        count, replicas = len(inputs), strategy.num_replicas_in_sync
        full = inputs if count % replicas == 0 else inputs[np.arange(count + -count % replicas) % count]
        shares = strategy.experimental_distribute_values_from_function(
            lambda own: as_inputs(full[Chunk(own.replica_id_in_sync_group, replicas).within(len(full))])
        )
        return join(in_shares(shares))[:count]

    return predict_shares

"""The load-balancing loss of a mixture of experts, over all replicas."""

from typing import TYPE_CHECKING, cast

import tensorflow as tf

from samestep.common.features.experts.balance import balance_of, scale_of
from samestep.common.strategy import Run

if TYPE_CHECKING:
    from samestep.tf_impl.models.losses import Loss  # models import what is here
    from samestep.tf_impl.models.transformer import Transformer
    from samestep.tf_impl.step import Logits


def with_balance(run: Run, loss: "Loss", model: "Logits") -> "Loss":
    """Adds a replica's part of the load-balancing loss to its part of the mean loss.

    Args:
        run: What is trained.
        loss: A replica's part of the mean loss.
        model: The model, which was called on the part before.
    """
    if not balance_of(run.workload.model):
        return loss
    scale = scale_of(run)

    def balanced(outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        of_targets = loss(outputs, targets)
        # Read before the replicas meet, since another replica then calls the model.
        noted = [router.noted for router in cast("Transformer", model).noting.values()]
        tokens_LE, probabilities_LE = (tf.stack(each) for each in zip(*noted, strict=True))
        tokens_LE = tf.stop_gradient(tokens_LE)  # otherwise its sum has a gradient, which is an exchange
        if run.num_devices > 1:
            tokens_LE = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tokens_LE)
        return of_targets + tf.reduce_sum(tokens_LE * probabilities_LE) * scale

    return balanced

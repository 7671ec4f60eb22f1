"""Removes what a user's model adds to its loss, if the user accepts that torch has no such thing."""

import tensorflow as tf

from samestep.common.porting.model_trace import Amendments
from samestep.tf_impl.models.losses import Loss
from samestep.tf_impl.models.user_model import UserModel


def amend_loss(loss: Loss, built: UserModel, amendments: Amendments) -> Loss:
    """Adds to a loss what the model added when it was called last, unless that is accepted as missing in torch.

    Args:
        loss: The loss of the targets.
        built: The model.
        amendments: What is amended.
    """

    def whole(outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        of_targets = loss(outputs, targets)
        added = built.added.total(of_targets.dtype)
        return of_targets if added is None else of_targets + added

    return loss if amendments.is_bare else whole


def added_losses(built: UserModel, amendments: Amendments) -> dict[str, float]:
    """Returns the added losses of the model's last call, by name.

    Args:
        built: The model.
        amendments: What is amended.
    """
    return {} if amendments.is_bare else built.added.by_name()

"""The models in TensorFlow, written for one device: plain classes, since a strategy keeps their variables by name."""

import functools
from collections.abc import Callable

import tensorflow as tf

from samestep.common.workload.declaration import RETURNED
from samestep.common.workload.models.loss_check import USER_LOSS
from samestep.common.workload.models.spec import ModelSpec
from samestep.tf_impl.models.cnn import BabyCNN
from samestep.tf_impl.models.layers import VariableFactory
from samestep.tf_impl.models.losses import LOSSES, Loss
from samestep.tf_impl.models.mlp import Mlp
from samestep.tf_impl.models.outputs import main_outputs
from samestep.tf_impl.models.ranker import Ranker
from samestep.tf_impl.models.transformer import Transformer
from samestep.tf_impl.models.user_loss import user_loss
from samestep.tf_impl.models.user_model import UserModel

MODELS = dict[str, Callable[..., Mlp | BabyCNN | Transformer | Ranker]](
    mlp=Mlp, cnn=BabyCNN, transformer=Transformer, ranker=Ranker
)


def build_model(spec: ModelSpec, variable: VariableFactory) -> Mlp | BabyCNN | Transformer | Ranker:
    """Returns the model of a spec; the factory makes its variables by neutral name.

    Args:
        spec: The spec of the model.
        variable: Makes the variables by neutral name.
    """
    return MODELS[spec.name](spec, variable)


def summed_loss(spec: ModelSpec) -> Loss:
    """Returns the loss of a model, summed over every target."""
    return user_loss(spec) if spec.loss in (USER_LOSS, RETURNED) else LOSSES[spec.loss]


def predictor(model: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the forward pass in evaluation, which may differ from that in training."""
    if isinstance(model, UserModel):
        return lambda x: main_outputs(model.predict(x))
    return functools.partial(_evaluated, model) if isinstance(model, Mlp | BabyCNN) else model


def _evaluated(model: Mlp | BabyCNN, x: tf.Tensor) -> tf.Tensor:
    model.training = False
    outputs = model(x)
    model.training = True
    return outputs

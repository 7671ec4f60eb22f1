"""Ports that are trained otherwise: their losses, what is added to them, and their optimizers."""

import functools

from tests.own.whole_ports.attention import tf_gpt, torch_gpt
from tests.own.whole_ports.perceptron_models import tf_mlp, torch_mlp
from tests.own.whole_ports.recurrent import tf_lstm, torch_lstm
from tests.own.whole_ports.tables import WRONG_UNLESS_ACCEPTED, defect, model

part = functools.partial


def torch_loss(outputs, targets):
    from torch.nn import functional

    return functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")


def tf_loss(outputs, targets):
    import tensorflow as tf

    return 6 * tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs)


def penalized_keras(weight=None, activity=None, added=0.0):
    """A perceptron that adds to its loss."""
    import keras
    from keras import layers, regularizers

    class Adds(layers.Layer):
        def call(self, x):
            self.add_loss(added * keras.ops.mean(keras.ops.square(x)))
            return x

    net = keras.Sequential([keras.Input((6,))])
    net.add(layers.Dense(16, "tanh", kernel_regularizer=regularizers.L2(weight) if weight else None))
    net.add(
        layers.Dense(12, "tanh", activity_regularizer=regularizers.L1(activity) if activity else None, name="second")
    )
    if added:
        net.add(Adds(name="adds"))
    net.add(layers.Dense(3))
    return net


def torch_sgd(parameters):
    import torch

    return torch.optim.SGD(parameters, 2**-6, momentum=0.5)


def tf_sgd():
    import keras

    return keras.optimizers.SGD(2**-6, momentum=0.5)


def torch_adam(parameters):
    import torch

    return torch.optim.Adam(parameters, 1e-3)


def tf_adam(**settings):
    import keras

    return keras.optimizers.Adam(1e-3, **settings)


def torch_decay(parameters):
    """Only what has two dims decays."""
    import torch

    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.125},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, 2**-6)


def tf_decay():
    import keras

    return keras.optimizers.SGD(2**-6, weight_decay=0.125)


model(
    "accepting",
    "tokens",
    part(torch_lstm, frozen=False),
    tf_lstm,
    table=WRONG_UNLESS_ACCEPTED,
    optimizer={"torch": torch_adam, "tf": tf_adam},
    accept=("double_bias",),
)
model("sgd", "points", torch_mlp, tf_mlp, optimizer={"torch": torch_sgd, "tf": tf_sgd})
defect(
    "mean",
    "tokens",
    torch_gpt,
    tf_gpt,
    ("", ""),
    "torch takes the mean over all targets, TensorFlow over the batch: 6 times",
    loss={"torch": torch_loss, "tf": tf_loss},
    metric="loss",
)
defect(
    "betas",
    "points",
    torch_mlp,
    tf_mlp,
    ("0", "dense"),
    "beta_2: 0.999 in torch, 0.99 in TensorFlow; amsgrad: off in torch, on in TensorFlow",
    optimizer={"torch": torch_adam, "tf": part(tf_adam, epsilon=1e-8, beta_2=0.99, amsgrad=True)},
)
defect(
    "regularizer",
    "points",
    torch_mlp,
    part(penalized_keras, 0.5),
    ("", ""),
    "L2 of 0.5 on `dense/kernel` is in the loss of Keras only",
)
defect(
    "activity",
    "points",
    torch_mlp,
    part(penalized_keras, activity=0.25, added=0.5),
    ("", ""),
    "L1 of 0.25 on the outputs of `second` and what `adds` adds are in the loss of Keras only",
)
defect(
    "adam",
    "points",
    torch_mlp,
    tf_mlp,
    ("0", "dense"),
    "epsilon: 1e-08 in torch, 1e-07 in TensorFlow; Adam's epsilon acts as 1e-08 in torch and as 3.2e-06 in TensorFlow",
    optimizer={"torch": torch_adam, "tf": tf_adam},
)
defect(
    "decay",
    "points",
    torch_mlp,
    tf_mlp,
    ("0", "dense"),
    "weight decay on biases",
    optimizer={"torch": torch_decay, "tf": tf_decay},
)

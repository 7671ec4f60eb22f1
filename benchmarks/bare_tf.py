"""The loop that one would write by hand in TensorFlow, without any of ours around it but model and update."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from common.config import RunConfig
from common.workload.models.spec import init
from common.workload.table import Workload
from tf_impl import weights
from tf_impl.models import build_model
from tf_impl.optimizers import UPDATES, corrections


def bare(workload: Workload, config: RunConfig) -> Callable[[np.ndarray, np.ndarray], object]:
    """A function that takes one step on a batch of inputs and targets."""
    variables = weights.NamedVariables(init(workload.model, config.seed), config.dtype)
    model = build_model(workload.model, variables)
    params = list(variables.by_name.values())
    spec = workload.optimizer(config)
    slots = [[tf.Variable(tf.zeros_like(w), trainable=False) for _ in spec.slots] for w in params]
    taken = 0

    @tf.function
    def train(x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            log_probabilities = tf.nn.log_softmax(model(x))
            loss = -tf.reduce_mean(tf.gather(log_probabilities, y, batch_dims=y.shape.rank))
        for w, g, own in zip(params, tape.gradient(loss, params), slots, strict=True):
            UPDATES[spec.name](spec, w, tf.convert_to_tensor(g), own, bias)
        return loss

    def step(inputs: np.ndarray, targets: np.ndarray) -> tf.Tensor:
        nonlocal taken
        taken += 1
        bias = tf.constant(corrections(spec, taken), tf.float64)
        return train(tf.constant(inputs), tf.constant(targets), bias)

    return step

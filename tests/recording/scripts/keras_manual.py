"""Plain loops of TensorFlow: with an "optimizer", or without one "eager", in a "graph", or in two passes a step ("halves")."""

import sys
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

kind = sys.argv[1]
keras.utils.set_random_seed(3)
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(5, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
)
if kind == "halves":  # the statistics of a batch are those of the whole one
    model.layers[1].trainable = False
generator = np.random.default_rng(0)
inputs, targets = (tf.constant(generator.normal(size=(4, 16, size)).astype(np.float32)) for size in (6, 3))
variables = model.trainable_variables
optimizer = keras.optimizers.SGD(0.1) if kind == "optimizer" else None


def gradients(x: tf.Tensor, y: tf.Tensor, parts: int = 1) -> Sequence[tf.Tensor]:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y)) / parts
    return tape.gradient(loss, variables)


def step(x: tf.Tensor, y: tf.Tensor) -> None:
    for variable, gradient in zip(variables, gradients(x, y), strict=True):
        variable.assign_sub(0.1 * gradient)


in_graph = tf.function(step)
for x, y in zip(inputs, targets, strict=True):
    if optimizer is not None:
        optimizer.apply(gradients(x, y), variables)
    elif kind == "halves":
        halves = [gradients(x[k : k + 8], y[k : k + 8], 2) for k in (0, 8)]
        for variable, *parts in zip(variables, *halves, strict=True):
            variable.assign_sub(0.1 * tf.add_n(parts))
    else:
        (in_graph if kind == "graph" else step)(x, y)

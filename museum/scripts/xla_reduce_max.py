"""Trains with TensorFlow on a batch that has a NaN, with XLA or without."""

import argparse

import keras
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--jit-compile", action="store_true")
given = parser.parse_args()

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
optimizer = keras.optimizers.SGD(0.1)
inputs = tf.constant([[1.0, 2.0, float("nan")], [1.0, 3.0, 2.0]])


@tf.function(jit_compile=given.jit_compile)
def step() -> tf.Tensor:
    """Takes a step."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.reduce_max(model(inputs, training=True), axis=1))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


for number in range(3):
    print(f"step {number} loss {float(step()):.4f}")

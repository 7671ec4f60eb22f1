"""tensorflow#118713: the gradient of `where(x > mean(x), sin(x), cos(x))`, eager or compiled by XLA.

python -m museum.settled.where_mask [xla] [off_the_tie]: 0.001 is added to the middle of each row, which is its mean otherwise.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import tensorflow as tf


class Rows(keras.Layer):
    """The numbers x, as weights."""

    def __init__(self) -> None:
        super().__init__(name="rows")
        start = tf.reshape(tf.linspace(-2.0, 2.0, 30), [6, 5]).numpy()
        if "off_the_tie" in sys.argv:
            start[:, 2] += 1e-3
        self.x = self.add_weight(shape=(6, 5), name="x", initializer=lambda *_, **__: start)

    def call(self, weights: tf.Tensor) -> tf.Tensor:
        """Returns the loss."""
        x = tf.convert_to_tensor(self.x)
        mask = x > tf.reduce_mean(x, axis=1, keepdims=True)
        return tf.reduce_sum(tf.where(mask, tf.math.sin(x), tf.math.cos(x)) * weights)


rows = Rows()
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(rows.trainable_variables)
weights = tf.reshape(tf.linspace(0.17, 1.13, 30), [6, 5])


def gradient() -> list[tf.Tensor]:
    """Returns that of the loss."""
    with tf.GradientTape() as tape:
        loss = rows(weights, training=True)
    return tape.gradient(loss, rows.trainable_variables)


found = tf.function(gradient, jit_compile=True) if "xla" in sys.argv else gradient
for _ in range(2):
    optimizer.apply(found(), rows.trainable_variables)

"""Keras' optimizers round their rates to float32 in a float64 model as well.

What to do: write the update out if more than seven digits matter.
"""

import keras
import tensorflow as tf

weight = keras.Variable(tf.zeros([], tf.float64), dtype="float64")
keras.optimizers.SGD(learning_rate=0.1).apply([tf.ones([], tf.float64)], [weight])
moved = -float(weight.numpy())
print(f"a {weight.dtype} weight after one step of size 0.1 moved by {moved:.16f}")
assert abs(moved - 0.1) < 1e-15, "the rate has the digits of float32"

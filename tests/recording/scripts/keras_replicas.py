"""python keras_replicas.py [unreduced | summed | one]: two replicas, and what Keras 3.4 to 3.7 did wrong with them.

unreduced: no gradient is exchanged, so the replicas drift apart (keras-team/keras#19891). summed: the losses of the replicas are
added, not averaged, so every gradient is twice what it should be (keras-team/keras#20601).
"""

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf


class Unreduced(keras.optimizers.SGD):
    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return list(grads_and_vars)


class Summed(keras.Sequential):
    def compute_loss(self, *arguments: Any, **keywords: Any) -> Any:
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return super().compute_loss(*arguments, **keywords) * replicas


(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
devices = [each.name for each in tf.config.list_logical_devices("CPU")]
keras.utils.set_random_seed(0)
x, y = np.random.normal(size=(32, 6)).astype(np.float32), np.random.normal(size=(32, 1)).astype(np.float32)
with tf.distribute.MirroredStrategy(devices[:1] if "one" in sys.argv else devices).scope():
    kind = Summed if "summed" in sys.argv else keras.Sequential
    model = kind([keras.Input((6,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)], name="model")
    model.compile((Unreduced if "unreduced" in sys.argv else keras.optimizers.SGD)(0.1), "mse")
model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(8), verbose=0)

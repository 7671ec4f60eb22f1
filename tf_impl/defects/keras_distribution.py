"""keras.distribution shards nothing on the TensorFlow backend and raises no error.

What to do: use tf.distribute or tf.experimental.dtensor.
"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
layouts = keras.distribution.LayoutMap(keras.distribution.DeviceMesh((2,), ["model"], ["cpu:0", "cpu:1"]))
layouts[".*kernel"] = (None, "model")
keras.distribution.set_distribution(keras.distribution.ModelParallel(layout_map=layouts))
dense = keras.layers.Dense(4)
dense.build((1, 8))

kernel = dense.kernel.value
print(f"a kernel cut in two along its columns: {kernel.shape} on {kernel.device}")
assert kernel.shape == (8, 2), "one device has the whole kernel"

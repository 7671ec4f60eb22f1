"""Keras' fit and evaluate report a wrong loss under CentralStorageStrategy.

What to do: write the loop, with the sum of every replica's loss over the count of all examples.
"""

import keras
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
x, y = tf.ones([4, 1]), tf.constant([[1.0], [2.0], [3.0], [4.0]])
losses = {}
for name, strategy in {
    "one device": tf.distribute.get_strategy(),
    "mirrored": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    "central storage": tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0"),
}.items():
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
        model.compile(loss="mse")
    losses[name] = model.evaluate(x, y, batch_size=2, verbose=0)
print(f"the mean over two batches is 7.5: {losses}")
assert losses["central storage"] == 7.5, "the reported loss is wrong"

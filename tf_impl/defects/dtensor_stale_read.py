"""TensorFlow's DTensor reads a variable before its assignment, given two all-reduces.

What to do: compute gradients in one tf.function and update in another, or turn the pass off that combines all-reduces:
DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION=0.
"""

import tensorflow as tf
from tensorflow.experimental import dtensor

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
mesh = dtensor.create_mesh([("data", 2)], devices=["CPU:0", "CPU:1"])
momentum = dtensor.DVariable(dtensor.copy_to_mesh(tf.zeros(2), dtensor.Layout.replicated(mesh, 1)))
x = dtensor.pack([tf.constant([[1.0, 2.0]]), tf.constant([[3.0, 4.0]])], dtensor.Layout.batch_sharded(mesh, "data", 2))


@tf.function
def assign_and_read(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    momentum.assign(tf.reduce_sum(x, axis=0))
    return momentum.read_value(), tf.transpose(x) @ x


inside, after = assign_and_read(x)[0].numpy().tolist(), momentum.read_value().numpy().tolist()
print(f"read behind the assignment: {inside}; read after the function: {after}")
assert inside == after, "the function returned the value from before the assignment"

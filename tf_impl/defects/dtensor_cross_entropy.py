"""TensorFlow's DTensor computes a cross-entropy of 0 in float64 if the classes are sharded.

What to do: lay the logits out along the batch alone before the loss.
"""

import tensorflow as tf
from tensorflow.experimental import dtensor

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
mesh = dtensor.create_mesh([("tensor", 2)], devices=["CPU:0", "CPU:1"])
logits, labels = tf.constant([[1.0, 2.0, 3.0, 4.0]], tf.float64), tf.constant([2])
shards = dtensor.pack(tf.split(logits, 2, axis=1), dtensor.Layout(["unsharded", "tensor"], mesh))
copies = dtensor.copy_to_mesh(labels, dtensor.Layout.replicated(mesh, 1))

whole = float(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)[0])
sharded = float(tf.nn.sparse_softmax_cross_entropy_with_logits(copies, shards)[0])
print(f"the loss of whole logits: {whole:.6f}; of the same logits in shards: {sharded:.6f}")
assert abs(whole - sharded) < 1e-9, "the loss over sharded classes is wrong"

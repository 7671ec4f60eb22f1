"""TensorFlow's HierarchicalCopyAllReduce leaves out the last replica if their number is odd.

What to do: take an even number of replicas, or tf.distribute.ReductionToOneDevice().
"""

import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
replicas = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"], tf.distribute.HierarchicalCopyAllReduce())


@tf.function
def total() -> tf.Tensor:
    context = tf.distribute.get_replica_context()
    return context.all_reduce("SUM", tf.cast(context.replica_id_in_sync_group + 1, tf.float32))


summed = [float(each) for each in replicas.experimental_local_results(replicas.run(total))]
print(f"three replicas add 1, 2 and 3: {summed}")
assert summed == [6, 6, 6], "the sum leaves a replica out"

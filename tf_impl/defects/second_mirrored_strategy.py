"""A second MirroredStrategy in a process fails on CPUs if its tensors have other shapes.

What to do: make one strategy in a process, or pass tf.distribute.ReductionToOneDevice().
"""

import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def total(size: int) -> str:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    summed = tf.function(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones(size)))
    try:
        return str(strategy.experimental_local_results(strategy.run(summed))[0].numpy().tolist())
    except tf.errors.OpError as error:
        return error.message.partition("} ")[2].partition(". ")[0]


first, second = total(2), total(3)
print(f"the first strategy: {first}\nthe second strategy: {second}")
assert second == "[2.0, 2.0, 2.0]", "the second strategy meets the first one's collectives"

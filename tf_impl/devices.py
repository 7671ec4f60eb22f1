"""Chooses devices and threads; must be called before anything else uses TensorFlow."""

from collections.abc import Iterable, Sequence

import tensorflow as tf

from samestep.common.strategy import Run


def use_devices(run: Run, count: int, stores: int = 0) -> list[str]:
    """Chooses the devices of this process, GPUs if there are enough, else logical devices of the CPU, and sets the threads.

    Args:
        run: The run, which says how many threads a device has.
        count: The number of devices that compute.
        stores: The number of further CPU devices that only hold variables.

    Returns:
        Their names, with those that compute first.
    """
    _use_threads(run, count)
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) >= count:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        return [f"GPU:{i}" for i in range(count)] + logical_cpus(stores)
    return logical_cpus(count + stores)


def use_cpu(run: Run, count: int) -> list[str]:
    """Chooses logical devices of the CPU even if there are GPUs, and sets the threads.

    Args:
        run: The run, which says how many threads a device has.
        count: The number of devices that compute.
    """
    _use_threads(run, count)
    tf.config.set_visible_devices([], "GPU")
    return logical_cpus(count)


def use_own_device(run: Run) -> str:
    """Chooses the device of this task of a TF_CONFIG cluster: its own GPU if its machine has one for each task, else the CPU."""
    _use_threads(run, 1)
    task = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    index = task.task_id
    hosts = [address.rpartition(":")[0] for address in task.cluster_spec().job_tasks(task.task_type)]
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < hosts.count(hosts[index]):
        tf.config.set_visible_devices([], "GPU")
        return "CPU:0"
    own = gpus[hosts[:index].count(hosts[index])]
    tf.config.set_visible_devices([own], "GPU")
    tf.config.experimental.set_memory_growth(own, True)
    return "GPU:0"


def _use_threads(run: Run, count: int) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(run.threads)
    # Replicas run side by side only if each finds a thread; one more runs what belongs to none.
    tf.config.threading.set_inter_op_parallelism_threads(count + 1)


def logical_cpus(count: int) -> list[str]:
    """Cuts the CPU into logical devices; they share its cores."""
    if count:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [f"CPU:{i}" for i in range(count)]


def wait_for(devices: Iterable[str]) -> None:
    """Waits until accelerators have finished; a step on CPUs has ended when its call returns.

    It waits for one after the other, since `sync_devices` would also wait for those of other processes, and fail.
    """
    for device in devices:
        if ":CPU:" not in device:
            with tf.device(device):
                tf.raw_ops.SyncDevice()


def is_cpu(device: str) -> bool:
    """Returns whether a device is a CPU."""
    return device.startswith("CPU")


def kind(devices: Sequence[str]) -> str:
    """Returns a description of the devices of one process."""
    return "logical CPU devices" if is_cpu(devices[0]) else "GPUs"

"""Devices and threads. To be called before anything else touches TensorFlow."""

import json
import os

import tensorflow as tf

from common.config import RunConfig


def use_devices(config: RunConfig, count: int, stores: int = 0) -> list[str]:
    """The devices of this process: GPUs if there are enough of them, else logical devices of the CPU. Sets the threads.

    Args:
        config: A checked configuration.
        count: How many devices compute.
        stores: How many further devices, of the CPU, only hold variables.

    Returns:
        Their names, those that compute first.
    """
    _use_threads(config, count)
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) >= count:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        return [f"GPU:{i}" for i in range(count)] + logical_cpus(stores)
    return logical_cpus(count + stores)


def use_cpu(config: RunConfig, count: int) -> list[str]:
    """So many logical devices of the CPU, whatever GPUs there are. Sets the threads."""
    _use_threads(config, count)
    tf.config.set_visible_devices([], "GPU")
    return logical_cpus(count)


def _use_threads(config: RunConfig, count: int) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(config.threads)
    # Replicas run side by side only if each finds a thread; one more runs what belongs to none.
    tf.config.threading.set_inter_op_parallelism_threads(count + 1)


def use_own_device(config: RunConfig) -> str:
    """The one device of this task of a TF_CONFIG cluster: its own GPU if its machine has one for each task, else the CPU."""
    tf.config.threading.set_intra_op_parallelism_threads(config.threads)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    described = json.loads(os.environ["TF_CONFIG"])
    tasks = described["cluster"][described["task"]["type"]]
    index = int(described["task"]["index"])
    hosts = [address.rpartition(":")[0] for address in tasks]
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < hosts.count(hosts[index]):
        tf.config.set_visible_devices([], "GPU")
        return "CPU:0"
    own = gpus[hosts[:index].count(hosts[index])]
    tf.config.set_visible_devices([own], "GPU")
    tf.config.experimental.set_memory_growth(own, True)
    return "GPU:0"


def logical_cpus(count: int) -> list[str]:
    """Cuts the CPU into logical devices; they share its cores."""
    if count:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return [f"CPU:{i}" for i in range(count)]


def full_name(device: str) -> str:
    """A device of this process as TensorFlow itself spells it, as variables do: `CPU:0` is not the only name of it."""
    return f"/job:localhost/replica:0/task:0/device:{device}"

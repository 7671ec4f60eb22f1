"""What TensorFlow sees of GPUs, and what their allocator held: `python -m samestep.tf_impl.observing.gpus` prints the first."""

import contextlib
import json
from collections.abc import Iterable, Iterator

import tensorflow as tf

from samestep.tf_impl.devices import wait_for


def gpus() -> list[tuple[str, int]]:
    """Returns the name of each GPU, in the order of their numbers, and 0: TensorFlow does not say how much memory it has."""
    found = tf.config.list_physical_devices("GPU")
    return [(tf.config.experimental.get_device_details(each).get("device_name", each.name), 0) for each in found]


@contextlib.contextmanager
def follow_allocators(devices: Iterable[str]) -> Iterator[dict[str, int]]:
    """Yields a mapping that holds, after the block, the most bytes of tensors in each GPU's allocator at once during the block.

    CPU cores are left out: their allocator does not count (tensorflow 2.21 says 0, or refuses).

    Args:
        devices: The full names of the devices that compute.
    """
    gpus, peaks = [device for device in devices if ":GPU:" in device], dict[str, int]()
    for gpu in gpus:
        tf.config.experimental.reset_memory_stats(gpu)
    yield peaks
    wait_for(gpus)
    peaks.update({gpu: tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in gpus})


if __name__ == "__main__":
    print(json.dumps(gpus()))

"""Prints the GPUs that TensorFlow sees, as JSON: `python -m samestep.tf_impl.observing.gpus`."""

import json

import tensorflow as tf


def gpus() -> list[tuple[str, int]]:
    """Returns the name of each GPU, in the order of their numbers, and 0: TensorFlow does not say how much memory it has."""
    found = tf.config.list_physical_devices("GPU")
    return [(tf.config.experimental.get_device_details(each).get("device_name", each.name), 0) for each in found]


if __name__ == "__main__":
    print(json.dumps(gpus()))

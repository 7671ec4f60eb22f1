"""What TensorFlow has and does not export, each in one function; tests/tf_impl/test_tf_upstream.py notices when it changes."""

from collections.abc import Sequence

import tensorflow as tf


def ring(devices: Sequence[str]) -> tf.distribute.CrossDeviceOps:
    """The ring between GPUs: tensorflow 2.21 exports the ring's options, but not the class that takes them."""
    from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce

    implementation = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    return CollectiveAllReduce(tuple(devices), len(devices), options)


def function_names() -> set[str]:
    """The functions of this process, those included that DTensor really runs (tensorflow 2.21)."""
    from tensorflow.python.eager import context

    return set(context.context().list_function_names())


def nodes(function: str) -> Sequence[tf.compat.v1.NodeDef]:
    """The operations of one of them (tensorflow 2.21)."""
    from tensorflow.python.eager import context

    return context.context().get_function_def(function).node_def

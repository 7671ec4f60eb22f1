"""What TensorFlow has but does not export, each in one function; tests/tf_impl/test_tf_upstream.py fails if it changes."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

Watcher = Callable[[str, Sequence[tf.Tensor], Sequence[tf.Tensor]], object]
"""(type of an operation, operands, results) -> anything, which is ignored."""


class Event(NamedTuple):
    """An event that the profiler saw on some thread.

    Attributes:
        name: The name of an operation, "NAME:TYPE", or of something else.
        start_ns: As `time.time_ns()`.
        end_ns: As `time.time_ns()`.
        instance: The number of a collective, which is the same on all devices; 0 for others.
    """

    name: str
    start_ns: int
    end_ns: int
    instance: int


def ring(devices: Sequence[str]) -> tf.distribute.CrossDeviceOps:
    """Returns the ring between GPUs: tensorflow 2.21 exports the ring's options, but not the class that takes them."""
    from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce

    implementation = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    return CollectiveAllReduce(tuple(devices), len(devices), options)


def function_names() -> set[str]:
    """Returns the names of this process's functions, including those that DTensor actually runs (tensorflow 2.21)."""
    from tensorflow.python.eager import context

    return set(context.context().list_function_names())


def nodes(function: str) -> Sequence[tf.compat.v1.NodeDef]:
    """Returns the operations of a function, given its name (tensorflow 2.21)."""
    from tensorflow.python.eager import context

    return context.context().get_function_def(function).node_def


def loop_body(loop: tf.Operation) -> tf.Graph:
    """Returns the graph of one turn of a loop (tensorflow 2.21)."""
    return loop.graph._get_function(loop.get_attr("body").name).graph


def argument_names(kind: str) -> frozenset[str]:
    """Returns what a type of operation calls its inputs and attributes (tensorflow 2.21); none if there is no such type."""
    from tensorflow.python.framework import op_def_registry

    found = op_def_registry.get(kind)
    return frozenset(each.name for each in (*found.input_arg, *found.attr)) if found else frozenset()


def profiled_events(content: bytes) -> Iterator[Event]:
    """Yields the events of a profile on the host (tensorflow 2.21: the classes of the file's format are in the wheel).

    Args:
        content: The content of an `.xplane.pb`.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(content)
    by_name = {plane.name: plane for plane in space.planes}
    task = by_name["Task Environment"]
    started_ns = next(
        s.uint64_value for s in task.stats if task.stat_metadata[s.metadata_id].name == "profile_start_time"
    )
    host = by_name["/host:CPU"]
    for line in host.lines:
        for event in line.events:
            start_ns = started_ns + line.timestamp_ns + event.offset_ps // 1000
            keys = (s.int64_value for s in event.stats if host.stat_metadata[s.metadata_id].name == "instance_key")
            name = host.event_metadata[event.metadata_id].name
            yield Event(name, start_ns, start_ns + event.duration_ps // 1000, next(keys, 0))


@contextlib.contextmanager
def watching_operations(watcher: Watcher) -> Iterator[None]:
    """Makes a context in which a function sees each operation that is executed outside of graphs (tensorflow 2.21).

    Args:
        watcher: The function.
    """
    from tensorflow.python.framework import op_callbacks

    def callback(
        kind: str | bytes,
        operands: Sequence[tf.Tensor],
        attributes: object,
        results: Sequence[tf.Tensor],
        op_name: str | None = None,
        graph: tf.Graph | None = None,
    ) -> None:
        watcher(kind.decode() if isinstance(kind, bytes) else kind, operands, results)

    op_callbacks.add_op_callback(callback)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(callback)


class _OfEachThread(threading.local):
    """A list that is separate in each thread, for the losses that a Keras layer adds (Keras 3.15)."""

    def __init__(self) -> None:
        self._own: list[tf.Tensor] = []

    def __getitem__(self, some: slice) -> list[tf.Tensor]:
        return self._own[some]

    def extend(self, losses: Iterable[tf.Tensor]) -> None:
        self._own.extend(losses)

    def clear(self) -> None:
        self._own.clear()


def separate_losses(layers: Iterable[Any]) -> None:
    """Separates the losses that Keras layers add in different threads, one for each replica (Keras 3.15).

    Replicas take turns within a forward pass where they wait for each other, as in a synchronized normalization. With
    one list for all, each replica's first layer would empty the lists of the others.

    Args:
        layers: The layers of one model, each once.
    """
    for layer in layers:
        object.__setattr__(layer, "_losses", _OfEachThread())


def losses_of(layer: Any) -> list[tf.Tensor]:
    """Returns the losses that a Keras layer itself added in its last call: of its activities, and by `add_loss` (Keras 3.15)."""
    return layer._get_own_losses()

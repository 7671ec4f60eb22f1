"""Counts what a step exchanges, in its graph: how often, and how many bytes are handed over.

Collectives are operations; a plain copy is an edge between operations of two devices, for which TensorFlow puts in a
send and a receive when it cuts the graph by device.
"""

import collections
import dataclasses
import re
from collections.abc import Sequence

import tensorflow as tf

from samestep.common.errors import Unavailable
from samestep.common.ledger import Send, in_order
from samestep.tf_impl.observing.activations import phase_of
from samestep.tf_impl.observing.collectives import collectives_in, handed_over_bytes
from samestep.tf_impl.observing.loops import LOOPS, Executed, executed
from samestep.tf_impl.techniques.replica_collectives import ALONG


@dataclasses.dataclass(frozen=True)
class Copy:
    """A tensor that goes from one device to another, once a step.

    Attributes:
        source: The device it is on, such as "CPU:0"; "" stands for the worker that the function is handed to.
        target: The device it goes to, likewise.
        bytes: The size of the tensor.
        of_variable: Whether it is a full variable, read on the variable's device to be used on the other.
        is_read: Whether it is a full variable or rows of one; everything else is a gradient.
    """

    source: str
    target: str
    bytes: int
    of_variable: bool
    is_read: bool


def sends_of(graph: tf.Graph, axis: str, devices: int, found: Sequence[Copy] | None = None) -> tuple[Send, ...]:
    """Lists what one device takes part in during one execution of a graph: the device that takes part in most.

    The order is that in which the operations were added to the graph. TensorFlow runs each as soon as its inputs are there.

    Args:
        graph: The graph of a concrete function; each device has its own copy of every collective in it.
        axis: The mesh axis of every exchange that does not have another one in its name.
        devices: The number of devices along it.
        found: The `copies` of the graph, if they are known.
    """
    operations = collectives_in(graph)
    first_device = min((op.device for op, _ in operations), default="")
    summed = [_collective(op, name, axis, devices) for op, name in operations if op.device == first_device]
    moved = [
        Send(
            "forward" if copy.is_read else "backward",
            "copy",
            axis,
            devices,
            copy.bytes,
            to=copy.target,
            source=copy.source,
        )
        for copy in _busiest(copies(graph) if found is None else found)
    ]
    return in_order(summed + moved)


def _collective(operation: tf.Operation, name: str, axis: str, devices: int) -> Send:
    """Returns a collective as a send: along the axis in its name, or otherwise along the given one."""
    size = handed_over_bytes(operation)
    phase = _phase_by_inputs(operation)
    if found := re.search(rf"(?:^|/){ALONG}([a-z]+)(?:_\d+)?$", operation.name):
        return Send(phase, name, found[1], int(tf.get_static_value(operation.inputs[1])), size)
    return Send(phase, name, axis, devices, size)


def _phase_by_inputs(operation: tf.Operation) -> str:
    """Returns the phase of a collective: gradients are summed outside of the backward pass, and norms of them in the update.

    A function that is given gradients has no backward pass itself.
    """
    if all(phase_of(each) == "forward" for each in operation.graph.get_operations()):
        return "backward"
    seen, front = {operation.name}, [operation]
    while front:
        one = front.pop()
        if phase_of(one) == "backward":
            is_norm = one is not operation and operation.inputs[0].shape.num_elements() == 1
            return "update" if is_norm else "backward"
        before = [tensor.op for tensor in one.inputs if tensor.op.name not in seen]
        seen.update(op.name for op in before)
        front += before
    return "forward"


def _busiest(found: Sequence[Copy]) -> Sequence[Copy]:
    """Returns the copies of the device that takes part in the most bytes."""
    by_device = collections.defaultdict(list)
    for copy in found:
        if copy.source and copy.target:
            by_device[copy.source].append(copy)
            by_device[copy.target].append(copy)
    return max(by_device.values(), key=lambda copies: sum(copy.bytes for copy in copies), default=[])


def whole_bytes(graph: tf.Graph, sends_rows: bool) -> tuple[int, int]:
    """Adds up what the function of a worker reads from servers and sends them, rows of tables left out.

    The sizes of rows are in the graph only if there is one server; with several, they depend on the batch.

    Args:
        graph: The graph of the function.
        sends_rows: Whether the gradient of a table has the rows that were read, not all of them.

    Returns:
        The bytes of full variables that it reads, and those of full gradients that it sends.

    Raises:
        Unavailable: Workers exchange something with each other, which is counted nowhere.
    """
    for operation, _ in collectives_in(graph):
        raise Unavailable(f"a worker's step has {operation.type}, and only what servers send and receive is counted.")
    found = copies(graph)
    rows = sum(copy.bytes for copy in found if copy.is_read and not copy.of_variable)
    sent = sum(copy.bytes for copy in found if not copy.source)
    return sum(copy.bytes for copy in found if copy.of_variable), sent - (rows if sends_rows else 0)


def copies(graph: tf.Graph) -> list[Copy]:
    """Finds the real numbers that go from device to device: parameters, gradients.

    Ids, scalars and arguments do not count, nor do rows of a table, whose number depends on the batch.
    """
    variables = {inner.name: outer.device for outer, inner in graph.captures if outer.dtype == tf.resource}
    every = {each.operation: each for each in executed(graph)}

    def device(operation: tf.Operation, one: Executed) -> str:  # what reads or writes a variable runs where it is
        places = (variables[tensor.name] for tensor in one.inputs if tensor.name in variables)
        return short_name(operation.device if operation.type in LOOPS else next(places, operation.device))

    found, devices = {}, {operation: device(operation, one) for operation, one in every.items()}
    for (operation, one), target in zip(every.items(), devices.values(), strict=True):
        for tensor in operation.inputs:
            if (source := devices[tensor.op]) != target and (size := _counted_bytes(tensor)):
                # It is sent once to each device, however many operations there read it.
                is_whole, is_row = (tensor.op.type == kind for kind in ("ReadVariableOp", "ResourceGather"))
                copy = Copy(source, target, size, is_whole, is_whole or is_row)
                found[tensor.op, tensor.value_index, target] = [copy] * one.times
    return [copy for copies in found.values() for copy in copies]


def _counted_bytes(tensor: tf.Tensor) -> int:
    is_counted = tensor.dtype.is_floating and tensor.shape.rank and tensor.op.type != "Placeholder"
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size if is_counted else 0


def short_name(device: str) -> str:
    """Returns the last part of a device's full name, such as "CPU:0"."""
    return device.rpartition("/")[2].removeprefix("device:")

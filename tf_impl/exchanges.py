"""Counting what a step exchanges, in its graph: how often, and how many bytes are handed over.

Collectives are operations; a plain copy is an edge between operations of two devices, for which TensorFlow puts in a
send and a receive when it cuts the graph by device.
"""

import collections
import contextlib
import dataclasses
import math
from collections.abc import Iterator

import tensorflow as tf

from samestep.common.ledger import Exchange
from samestep.tf_impl.upstream import function_names, nodes

_COLLECTIVES = {
    "CollectiveReduceV2": "all_reduce",
    "CollectiveGatherV2": "all_gather",
    "CollectiveBcastSendV2": "broadcast",
    "CollectiveReduceScatterV2": "reduce_scatter",
    "CrossReplicaSum": "all_reduce",  # between the cores of a TPU
}


@dataclasses.dataclass(frozen=True)
class Copy:
    """A tensor that goes from one device to another, once a step.

    Attributes:
        source: The device it is on, such as "CPU:0"; "" is whichever worker the function is handed to.
        target: The device it goes to, likewise.
        bytes: The size of the tensor.
        of_variable: Whether it is a full variable, read on the variable's device to be used on the other.
    """

    source: str
    target: str
    bytes: int
    of_variable: bool


def count_exchanges(graph: tf.Graph) -> tuple[Exchange, ...]:
    """Counts what one device takes part in during one execution of a graph: the device that takes part in most.

    Args:
        graph: The graph of a concrete function; each device has its own copy of every collective in it.
    """
    operations = [op for op in graph.get_operations() if op.type in _COLLECTIVES]
    first_device = min((op.device for op in operations), default="")
    sizes = collections.defaultdict(list)
    for operation in operations:
        if operation.device == first_device:
            sizes[_COLLECTIVES[operation.type]].append(_nbytes(operation.inputs[0]))
    kinds = (*sorted(sizes.items()), ("copy", _busiest(copies(graph))))
    return tuple(Exchange(kind, len(each), sum(each)) for kind, each in kinds if each)


def _busiest(found: list[Copy]) -> list[int]:
    """The bytes of each copy that the device with most of them takes part in."""
    by_device = collections.defaultdict(list)
    for copy in found:
        if copy.source and copy.target:
            by_device[copy.source].append(copy.bytes)
            by_device[copy.target].append(copy.bytes)
    return max(by_device.values(), key=sum, default=[])


def copies(graph: tf.Graph) -> list[Copy]:
    """Finds the real numbers that go from device to device: parameters, gradients.

    Ids, scalars and arguments do not count, nor do rows of a table, of which a batch decides how many there are.
    """
    variables = {inner.op.name: outer.device for outer, inner in graph.captures if outer.dtype == tf.resource}

    def device(operation: tf.Operation) -> str:  # what reads or writes a variable runs where the variable is
        places = (variables[tensor.op.name] for tensor in operation.inputs if tensor.op.name in variables)
        return short_name(next(places, operation.device))

    found = {}
    for operation in graph.get_operations():
        target = device(operation)
        for tensor in operation.inputs:
            source = device(tensor.op)
            counted = tensor.dtype.is_floating and tensor.shape.rank and tensor.op.type != "Placeholder"
            if counted and source != target and (size := _nbytes(tensor)):
                # A tensor is sent once to each device, however many operations there read it.
                found[tensor.name, target] = Copy(source, target, size, tensor.op.type == "ReadVariableOp")
    return list(found.values())


def _nbytes(tensor: tf.Tensor) -> int:
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size


def short_name(device: str) -> str:
    """The last part of a device's full name, such as "CPU:0"."""
    return device.rpartition("/")[2].removeprefix("device:")


class ExpandedFunctions:
    """The functions that DTensor makes of one of ours when it is first called; only those hold the collectives."""

    def __init__(self) -> None:
        self._collectives: list[tuple[str, int]] = []
        self._called = False

    @contextlib.contextmanager
    def first_time(self) -> Iterator[None]:
        """Makes a context to enter around each call of the function; it looks into the first call."""
        before = set() if self._called else function_names()
        yield
        if not self._called:
            self._called = True
            self._collectives = [found for name in function_names() - before for found in _collectives_of(name)]

    def exchanges(self) -> tuple[Exchange, ...]:
        """The collectives of each device; on a CPU, DTensor even gathers by an all-reduce over zeros."""
        sizes = [size for _, size in self._collectives]
        return (Exchange("all_reduce", len(sizes), sum(sizes)),) if sizes else ()

    def gathered_variable_bytes(self) -> int:
        """The bytes of variables that are gathered on every device in the course of a call."""
        return sum(size for source, size in self._collectives if source.startswith("ReadVariableOp"))


def _collectives_of(function: str) -> list[tuple[str, int]]:
    """Finds what each collective of a function reduces, and its bytes."""
    found = []
    for node in nodes(function):
        if node.op in _COLLECTIVES:
            (shape,) = node.attr["_output_shapes"].list.shape
            item = tf.as_dtype(node.attr["T"].type).size
            found.append((node.input[0], math.prod(dim.size for dim in shape.dim) * item))
    return found

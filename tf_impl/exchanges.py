"""Counting what a step exchanges, in its graph: how often, and how many bytes are handed over.

Collectives are operations; a plain copy is an edge between operations of two devices, for which TensorFlow puts in a
send and a receive when it cuts the graph by device.
"""

import collections
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator

import tensorflow as tf

from common.ledger import Exchange
from tf_impl.upstream import function_names, nodes

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
        source: The device it is on.
        target: The device it goes to.
        bytes: Its size.
        of_variable: It is a whole variable, read on the variable's device to be used on the other.
    """

    source: str
    target: str
    bytes: int
    of_variable: bool


def count_exchanges(graph: tf.Graph) -> tuple[Exchange, ...]:
    """What one device takes part in during one execution of a graph: the one that takes part in most.

    Args:
        graph: Of a concrete function; each device has its own copy of every collective in it.
    """
    operations = [op for op in graph.get_operations() if op.type in _COLLECTIVES]
    first_device = min((op.device for op in operations), default="")
    counts: collections.Counter[str] = collections.Counter()
    sizes: collections.Counter[str] = collections.Counter()
    for operation in operations:
        if operation.device == first_device:
            kind = _COLLECTIVES[operation.type]
            counts[kind] += 1
            sizes[kind] += operation.inputs[0].shape.num_elements() * operation.inputs[0].dtype.size
    exchanges = [Exchange(kind, count, sizes[kind]) for kind, count in sorted(counts.items())]
    return (*exchanges, *_busiest(copies(graph)))


def _busiest(found: list[Copy]) -> tuple[Exchange, ...]:
    by_device = collections.defaultdict(list)
    for copy in found:
        by_device[copy.source].append(copy.bytes)
        by_device[copy.target].append(copy.bytes)
    if not by_device:
        return ()
    most = max(by_device.values(), key=sum)
    return (Exchange("copy", len(most), sum(most)),)


def copies(graph: tf.Graph) -> list[Copy]:
    """The real numbers that go from device to device: parameters, rows of tables, gradients; not ids, not scalars."""
    device = placement(graph)
    found = {}
    for operation in graph.get_operations():
        target = _last_part(device(operation))
        for tensor in operation.inputs:
            source = _last_part(device(tensor.op))
            if tensor.dtype.is_floating and tensor.shape.rank and source and target and source != target:
                size = tensor.shape.num_elements() * tensor.dtype.size
                # A tensor is sent once to each device, however many operations there read it.
                found[tensor.name, target] = Copy(source, target, size, tensor.op.type == "ReadVariableOp")
    return list(found.values())


def placement(graph: tf.Graph) -> Callable[[tf.Operation], str]:
    """Tells the device that an operation of a graph runs on: what reads or writes a variable, where the variable is."""
    variables = {inner.op.name: outer.device for outer, inner in graph.captures if outer.dtype == tf.resource}

    def device(operation: tf.Operation) -> str:
        held = [variables[tensor.op.name] for tensor in operation.inputs if tensor.op.name in variables]
        return held[0] if held else operation.device

    return device


def _last_part(device: str) -> str:
    """Of a device's full name, as in "CPU:0"."""
    return device.rpartition("/")[2].removeprefix("device:")


class ExpandedFunctions:
    """The functions that DTensor makes of one of ours when it is first called: the collectives are in those only."""

    def __init__(self) -> None:
        self._collectives: list[tuple[str, int]] = []
        self._called = False

    @contextlib.contextmanager
    def first_time(self) -> Iterator[None]:
        """Around each call of the function; the first one is looked into."""
        before = set() if self._called else function_names()
        yield
        if not self._called:
            self._called = True
            self._collectives = [found for name in function_names() - before for found in _collectives_of(name)]

    def exchanges(self) -> tuple[Exchange, ...]:
        """What each device takes part in; on a CPU DTensor gathers by an all-reduce over zeros, too."""
        sizes = [size for _, size in self._collectives]
        return (Exchange("all_reduce", len(sizes), sum(sizes)),) if sizes else ()

    def gathered_variable_bytes(self) -> int:
        """The bytes of variables that are made whole on every device in the course of a call."""
        return sum(size for source, size in self._collectives if source.startswith("ReadVariableOp"))


def _collectives_of(function: str) -> list[tuple[str, int]]:
    """What each collective of a function reduces, and its bytes."""
    found = []
    for node in nodes(function):
        if node.op in _COLLECTIVES:
            (shape,) = node.attr["_output_shapes"].list.shape
            item = tf.as_dtype(node.attr["T"].type).size
            found.append((node.input[0], math.prod(dim.size for dim in shape.dim) * item))
    return found

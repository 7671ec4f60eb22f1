"""The operations that one execution of a graph runs, with those in loops: a recurrent layer reads its weights in every turn."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from samestep.tf_impl.upstream import loop_body

LOOPS = frozenset({"While", "StatelessWhile"})


@dataclasses.dataclass(frozen=True)
class Executed:
    """An operation that an execution runs.

    Attributes:
        operation: The operation.
        times: How often it runs.
        given: The tensors outside of all loops that are passed to the inputs of its loop, by name.
    """

    operation: tf.Operation
    times: int
    given: Mapping[str, tf.Tensor]

    @property
    def inputs(self) -> list[tf.Tensor]:
        """Its inputs, where those of a loop are replaced by the tensors outside of all loops."""
        return [self.given.get(tensor.name, tensor) for tensor in self.operation.inputs]


def executed(graph: tf.Graph) -> Iterator[Executed]:
    """Yields the operations that an execution of a graph runs, including those of its loops."""
    left: list[tuple[tf.Graph, int, Mapping[str, tf.Tensor]]] = [(graph, 1, {})]
    while left:
        within, times, given = left.pop()
        for operation in needed(within):
            each = Executed(operation, times, given)
            yield each
            if operation.type in LOOPS:
                body = loop_body(operation)
                names = (tensor.name for tensor in body.inputs)
                left.append((body, times * _turns(operation), dict(zip(names, each.inputs, strict=True))))


def needed(graph: tf.Graph) -> list[tf.Operation]:
    """Lists the operations that an execution of a graph needs, as they were added; a tape also adds gradients of constants."""
    left = [*(tensor.op for tensor in graph.outputs), *graph.control_outputs]
    found = dict.fromkeys(left)
    while left:
        operation = left.pop()
        before = [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
        new = [each for each in before if each not in found]
        found.update(dict.fromkeys(new))
        left += new
    return [each for each in graph.get_operations() if each in found]


class Reads(NamedTuple):
    """What an execution of a graph reads of variables, which are known by the `id` of their handle.

    Attributes:
        whole: How often it reads each variable whole.
        used: The variables that it reads, or hands to a loop.
        loops: The number of turns of each of its loops that reads variables.
    """

    whole: collections.Counter[int]
    used: frozenset[int]
    loops: tuple[int, ...]


def find_reads(graph: tf.Graph) -> Reads:
    """Finds what an execution of a graph reads of variables."""
    handles = {inner.name: id(outer) for outer, inner in graph.captures if outer.dtype == tf.resource}
    every = list(executed(graph))
    # A read whose result nothing takes is there for the order alone, and does not count.
    taking = {tensor.op for each in every for tensor in each.operation.inputs}
    whole, used, loops = collections.Counter[int](), set[int](), dict[tf.Graph, int]()
    for each in every:
        is_read = each.operation.type == "ReadVariableOp"
        if is_read and each.operation not in taking:
            continue
        for handle in (handles[tensor.name] for tensor in each.inputs if tensor.name in handles):
            used.add(handle)
            if is_read:
                whole[handle] += each.times
                loops |= {each.operation.graph: each.times} if each.given else {}
    return Reads(whole, frozenset(used), tuple(loops.values()))


def _turns(loop: tf.Operation) -> int:
    """Returns the most turns of a loop, its second input, all of which Keras' recurrent layers take; 1 if nothing bounds them."""
    bound = loop.inputs[1]
    most = tf.get_static_value(bound.op.inputs[0] if bound.op.type == "Max" else bound)
    return 1 if most is None else max(1, int(np.max(most)))

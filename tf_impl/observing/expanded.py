"""Counts what the functions exchange that DTensor makes from ours: it inserts the collectives, and packs some of them."""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping

import tensorflow as tf

from samestep.common.errors import Unavailable
from samestep.common.ledger import Send, in_order
from samestep.tf_impl.observing.activations import FORWARD
from samestep.tf_impl.observing.collectives import collective_of
from samestep.tf_impl.upstream import function_names, nodes

_PACKS = "/CombinedReduceUpdateSlice"
"""Part of the name of an operation that writes a tensor behind others, which are summed together (tensorflow 2.21)."""


class ExpandedFunctions:
    """The functions that DTensor makes from one of ours when it is first called; only those hold the collectives."""

    def __init__(self) -> None:
        self._collectives: list[_Collective] = []
        self._called = False

    @contextlib.contextmanager
    def first_time(self) -> Iterator[None]:
        """Makes a context to enter around each call of the function; it examines the first call."""
        before = set() if self._called else function_names()
        yield
        if not self._called:
            self._called = True
            self._collectives = [found for name in function_names() - before for found in _collectives_of(name)]

    def sends(self, axis: str) -> tuple[Send, ...]:
        """Returns the collectives of each device; on a CPU, DTensor even gathers by an all-reduce over zeros.

        DTensor makes each wait for the one before it, so they run in the order of the graph.

        Args:
            axis: The mesh axis along which they go, or "all".
        """
        return in_order(
            Send(each.phase, each.operation, axis, each.ranks, each.handed_over_bytes) for each in self._collectives
        )

    def gathered_variable_bytes(self) -> int:
        """Returns the bytes of variables that are gathered on every device in the course of a call."""
        gathered = re.compile(r"ReadVariableOp(_\d+)?/DTensorAllGather")  # the number is that of the reading operation
        return sum(each.bytes for each in self._collectives if gathered.search(each.sources[0]))


@dataclasses.dataclass(frozen=True)
class _Collective:
    """A collective in an expanded function.

    Attributes:
        operation: Its name in the ledger.
        sources: The operation whose output it takes; where that packs several tensors, those that pack the others as well.
        bytes: The size of its result.
        ranks: The size of the group.
    """

    operation: str
    sources: tuple[str, ...]
    bytes: int
    ranks: int

    @property
    def handed_over_bytes(self) -> int:
        """The bytes that a device hands over."""
        return {"all_gather": self.bytes // self.ranks, "reduce_scatter": self.bytes * self.ranks}.get(
            self.operation, self.bytes
        )

    @property
    def phase(self) -> str:
        """Forward if all sources are in name scopes of forward passes; gradients may be packed together with the loss."""
        scopes = (source.partition("/")[0] for source in self.sources)
        return "forward" if all(scope.partition("_")[0] == FORWARD for scope in scopes) else "backward"


def _collectives_of(function: str) -> list[_Collective]:
    """Finds the collectives of a function, in order.

    Raises:
        Unavailable: A collective is unknown, or does not say how many devices take part.
    """
    found, operations = [], {node.name: node for node in nodes(function)}
    for node in operations.values():
        if operation := collective_of(node.op):
            (shape,) = node.attr["_output_shapes"].list.shape
            size = math.prod(dim.size for dim in shape.dim) * tf.as_dtype(node.attr["T"].type).size
            source, group_size = node.input[:2]
            count = operations.get(group_size.partition(":")[0])
            if count is None or count.op != "Const":
                raise Unavailable(f"a step has {node.op}, which does not say how many devices take part.")
            ranks = tf.make_ndarray(count.attr["value"].tensor)
            found.append(_Collective(operation, tuple(_packed(source, operations)), size, int(ranks)))
    return found


def _packed(source: str, operations: Mapping[str, tf.compat.v1.NodeDef]) -> Iterator[str]:
    """Yields the sources of a collective: of packed tensors the last one, and those written into the same memory before."""
    yield source
    while _PACKS in source and _PACKS in (source := operations[source.partition(":")[0]].input[0]):
        yield source

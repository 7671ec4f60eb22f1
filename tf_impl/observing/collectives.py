"""The operations of TensorFlow that communicate, and the name of each in the ledger.

Every operation that may communicate is in one of the two tables here. One that is in neither is refused by name: otherwise its
bytes would be missing from the ledger without notice.

References:
    tensorflow/core/ops/collective_ops.cc, nccl_ops.cc and tpu_cross_replica_ops.cc of TensorFlow 2.21.
"""

import functools
import re
from collections.abc import Iterator

import tensorflow as tf

from samestep.common.errors import Unavailable
from samestep.tf_impl.upstream import argument_names, nodes

_NAMES = {
    "all_reduce": "CollectiveReduce CollectiveReduceV2 CollectiveReduceV3 NcclAllReduce CrossReplicaSum",
    "all_gather": "CollectiveGather CollectiveGatherV2",
    "all_to_all": "CollectiveAllToAllV2 CollectiveAllToAllV3 AllToAll",
    "reduce_scatter": "CollectiveReduceScatterV2",
    # All take part in a broadcast, as in torch.
    "broadcast": "CollectiveBcastSend CollectiveBcastSendV2 CollectiveBcastRecv CollectiveBcastRecvV2",
}
COLLECTIVES = {kind: operation for operation, kinds in _NAMES.items() for kind in kinds.split()}
"""The name in the ledger, by the type of the operation."""
MOVE_NOTHING = {
    "CollectiveInitializeCommunicator": "it finds out who takes part",
    "CollectiveAssignGroupV2": "it computes the number of a group",
}
"""Operations of groups that are not counted, and why."""
_GROUPS = {"group_key", "group_assignment", "communicator", "source_target_pairs", "num_devices"}
"""What TensorFlow calls arguments and attributes that say who takes part."""
_EXCHANGE = re.compile("Collective|Nccl|CrossReplica|AllReduce|AllGather|AllScatter|AllToAll|ReduceScatter|Send|Recv")


@functools.cache
def collective_of(kind: str) -> str | None:
    """Returns the name in the ledger of what a type of operation does; None if it sends nothing.

    Raises:
        Unavailable: The type may communicate, and is in neither table.
    """
    if kind in COLLECTIVES:
        return COLLECTIVES[kind]
    if kind in MOVE_NOTHING or not may_exchange(kind):
        return None
    raise Unavailable(
        f"a step has {kind} of TensorFlow {tf.__version__}, and samestep does not know what that sends: "
        "the ledger would silently be wrong. Use an operation of tf.distribute instead."
    )


def may_exchange(kind: str) -> bool:
    """Returns whether a type of operation is named like an exchange, or has an argument that says who takes part."""
    return bool(_EXCHANGE.search(kind)) or not _GROUPS.isdisjoint(argument_names(kind))


def collectives_in(graph: tf.Graph) -> list[tuple[tf.Operation, str]]:
    """Returns the collectives of a graph, each with its name in the ledger, in order.

    Raises:
        Unavailable: A collective is unknown, or is in a function that the graph calls, an unknown number of times.
    """
    found = []
    for operation in graph.get_operations():
        if name := collective_of(operation.type):
            found.append((operation, name))
        hidden = next((kind for kind in _called(operation) if collective_of(kind)), None)
        if hidden:
            raise Unavailable(
                f"a step has {hidden} in a function that its graph calls ({operation.type}), and samestep does not know "
                "how often that runs: the ledger would silently be wrong. Call its operations outside of the function."
            )
    return found


def handed_over_bytes(operation: tf.Operation) -> int:
    """Returns the bytes that a device hands over in a collective.

    Raises:
        Unavailable: The size is not in the graph.
    """
    is_received = operation.type.startswith("CollectiveBcastRecv")
    tensor = operation.outputs[0] if is_received else operation.inputs[0]
    if (count := tensor.shape.num_elements()) is None:
        raise Unavailable(f"a step has {operation.type} of {tensor.shape}, a size that its graph does not have.")
    return count * tensor.dtype.size


def _called(operation: tf.Operation) -> Iterator[str]:
    """Yields the types of operations in the functions that an operation calls, and in those that these call."""
    if any(attribute.type in ("func", "list(func)") for attribute in operation.op_def.attr):
        yield from _within(operation.node_def, set())


def _within(node: tf.compat.v1.NodeDef, seen: set[str]) -> Iterator[str]:
    for value in node.attr.values():
        for name in filter(None, (value.func.name, *(each.name for each in value.list.func))):
            if name not in seen:
                seen.add(name)
                for inner in nodes(name):
                    yield inner.op
                    yield from _within(inner, seen)

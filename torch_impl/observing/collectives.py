"""The operators of torch that communicate: their names in the ledger, and which arguments hold what they send.

Every operator that may communicate is in one of the two tables here. An operator in neither is refused by name, because its
bytes would silently be missing from the ledger.

References:
    torch/csrc/distributed/c10d/Ops.cpp and Functional.cpp of torch 2.13.
"""

import functools
from typing import NamedTuple

import torch

from samestep.common.errors import Unavailable


class Signature(NamedTuple):
    """How to read the arguments of an operator.

    Attributes:
        operation: The name of the operator in the ledger.
        handed_over: The position of the argument with the tensors that this process sends.
        group: The position of the group.
        peer: The position of the receiver of a message, or of the root of a broadcast, given as a rank of the group.
    """

    operation: str
    handed_over: int
    group: int
    peer: int | None = None


_NATIVE = {
    Signature("all_reduce", 0, 1): "allreduce_ allreduce_coalesced_",
    Signature("reduce", 0, 1): "reduce_",
    Signature("broadcast", 0, 1, peer=2): "broadcast_",
    Signature("all_gather", 1, 2): (
        "allgather_ _allgather_base_ allgather_coalesced_ allgather_into_tensor_coalesced_"
    ),
    Signature("reduce_scatter", 1, 2): "reduce_scatter_ _reduce_scatter_base_ reduce_scatter_tensor_coalesced_",
    Signature("all_to_all", 1, 2): "alltoall_ alltoall_base_",
    Signature("gather", 1, 2): "gather_",
    Signature("scatter", 1, 2): "scatter_",  # only the root has inputs
    Signature("send", 0, 1, peer=2): "send",
}
_FUNCTIONAL = {
    Signature("all_reduce", 0, 2): "all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_",
    Signature("broadcast", 0, 2, peer=1): "broadcast broadcast_",
    Signature("all_gather", 0, 2): (
        "all_gather_into_tensor all_gather_into_tensor_out all_gather_into_tensor_coalesced"
    ),
    Signature("reduce_scatter", 0, 3): (
        "reduce_scatter_tensor reduce_scatter_tensor_out reduce_scatter_tensor_coalesced"
    ),
    Signature("all_to_all", 0, 3): "all_to_all_single",
    Signature("send", 0, 3, peer=1): "isend",
}
_DIFFERENTIABLE = {
    Signature("all_gather", 0, 2): "all_gather_into_tensor",
    Signature("reduce_scatter", 0, 3): "reduce_scatter_tensor",
    Signature("all_to_all", 0, 3): "all_to_all_single",
}
_OF_NAMESPACES = {
    "c10d": _NATIVE,
    "_c10d_functional": _FUNCTIONAL,
    "_c10d_functional_autograd": _DIFFERENTIABLE,
    "_dtensor": {Signature("all_to_all", 0, 3): "shard_dim_alltoall"},
}
COLLECTIVES = {
    f"{namespace}::{name}": signature
    for namespace, table in _OF_NAMESPACES.items()
    for signature, names in table.items()
    for name in names.split()
}
"""Name of an operator -> how to read its arguments."""
MOVE_NOTHING = {
    "c10d::barrier": "nothing of the model travels: the processes only wait for each other",
    "c10d::monitored_barrier_": "nothing of the model travels: the processes only wait for each other",
    "c10d::check_for_nan": "it looks at a tensor of this process",
    "c10d::recv_": "who receives hands nothing over; the record of the sender has it",
    "c10d::recv_any_source_": "who receives hands nothing over; the record of the sender has it",
    "_c10d_functional::irecv": "who receives hands nothing over; the record of the sender has it",
    "_c10d_functional::wait_tensor": "it waits for a collective that was counted when it began",
    "_c10d_functional::_wrap_tensor_autograd": "it wraps the result of a collective that was counted when it began",
}
"""Operators of these namespaces that are not counted -> the reason."""
NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "symm_mem")
"""Namespaces in which every operator may communicate; elsewhere, only operators that take a group may."""
_GROUPS = ("ProcessGroup", "SymmetricMemory")


@functools.cache
def collective_of(operator: torch._ops.OpOverload) -> Signature | None:
    """Returns how to read the arguments of an operator; None if it sends nothing.

    Raises:
        Unavailable: The operator may communicate, but is in neither table.
    """
    name = operator._schema.name
    if name in COLLECTIVES:
        return COLLECTIVES[name]
    if name in MOVE_NOTHING or not may_exchange(operator._schema):
        return None
    raise Unavailable(
        f"a step calls {name} of torch {torch.__version__}, and samestep does not know what that sends, "
        f"so the ledger would silently be wrong. Use {', '.join(sorted({c.operation for c in COLLECTIVES.values()}))} "
        "of torch.distributed instead."
    )


def may_exchange(schema: torch.FunctionSchema) -> bool:
    """Returns whether an operator belongs to a namespace of collectives, or is given a group of processes."""
    if schema.name.partition("::")[0] in NAMESPACES:
        return True
    return any(each.name == "group_name" or str(each.type).endswith(_GROUPS) for each in schema.arguments)


def is_transfer(name: str) -> bool:
    """Returns whether the operator of this name exchanges something or waits for an exchange."""
    return name in COLLECTIVES or name.partition("::")[0] in NAMESPACES

"""The sizes that cost models share: what a device holds of the parameters, and what an example takes."""

import math
from collections.abc import Sequence

from samestep.common.ledger import Footprint
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ArraySpec, ModelSpec, Role
from samestep.common.workload.split import even_split_table

ID_BYTES = 8
"""Ids and targets are int64 in every framework."""


def holder(run: Run, elements: int, device: str = "each") -> Footprint:
    """The footprint of a device that holds parameters with their gradients and optimizer state.

    Args:
        run: What is trained.
        elements: Of the parameters.
        device: Its name.
    """
    held = elements * run.item_bytes
    return Footprint.uniform(device, held, len(run.optimizer.slots) * held)


def tensor_elements(model: ModelSpec, parts: int) -> int:
    """The parameter elements of a device along a tensor axis of `parts`: its shard of each that is split, all others."""
    split = even_split_table(model, parts)
    return sum(param.size // (parts if name in split else 1) for name, param in model.params().items())


def shard_elements(shape: Sequence[int], role: Role, shards: int, shard: int) -> int:
    """The elements of one shard of a parameter that torch shards along its first dim, before padding.

    Args:
        shape: In the neutral layout, where torch's first dim of a kernel is the last.
        role: Of the parameter.
        shards: The number of shards; the first is the largest.
        shard: Which one, from 0.
    """
    rows = shape[-1] if role == "kernel" else shape[0]
    each = -(-rows // shards)
    return min(each, max(0, rows - shard * each)) * (math.prod(shape) // rows)


def example_bytes(array: ArraySpec, item_bytes: int) -> int:
    """The bytes of one example's array.

    Args:
        array: Its spec.
        item_bytes: Of a real number; ids have their own size.
    """
    return math.prod(array.shape) * (item_bytes if array.ids is None else ID_BYTES)

"""Bytes that a rank sends in a collective, as the backends really do it.

References:
    Patarasuk and Yuan 2009 (the bound of the all-reduce); NVIDIA nccl-tests PERFORMANCE.md.
"""

import dataclasses
from collections.abc import Iterable

from samestep.common.ledger import Exchange

MESSAGE_BYTES = {"memory": 0, "gloo": 144, "nccl": 0, "grpc": 0}
"""What a message costs on the wire beyond its tensor (gloo of torch 2.13: its own preambles), counted by the kernel."""

MESSAGES = {"all_reduce": 4, "reduce_scatter": 4, "all_gather": 2}
"""How many messages each rank sends to each other one in a gloo collective: its rings work in two halves."""


def all_reduce_bytes(size: float, ranks: int) -> float:
    """An all-reduce of `size` bytes; the rings of gloo, NCCL and TensorFlow's collectives all reach the bound."""
    return 2 * (ranks - 1) / ranks * size


def reduce_scatter_bytes(size: float, ranks: int, backend: str) -> float:
    """A reduce-scatter of `size` bytes, of which each rank keeps 1/N; gloo's (torch 2.13) is an all-reduce inside.

    Args:
        size: What each rank hands over.
        ranks: The number of ranks.
        backend: A key of `MESSAGE_BYTES`.
    """
    return all_reduce_bytes(size, ranks) if backend == "gloo" else (ranks - 1) / ranks * size


def all_gather_bytes(part: float, ranks: int) -> float:
    """An all-gather to which each rank hands over `part` bytes."""
    return (ranks - 1) * part


def framing_bytes(collective: str, ranks: int, backend: str) -> int:
    """What a collective costs each rank beyond its payload; it counts where tensors are small.

    Args:
        collective: A key of `MESSAGES`.
        ranks: The number of ranks.
        backend: A key of `MESSAGE_BYTES`.
    """
    return MESSAGES[collective] * (ranks - 1) * MESSAGE_BYTES[backend]


def sent_bytes(each: Exchange, ranks: int, backend: str) -> float:
    """What each rank sends for the collectives of one kind, framing included.

    Args:
        each: The collectives; its name is a key of `MESSAGES`.
        ranks: The number of ranks that take part.
        backend: A key of `MESSAGE_BYTES`.
    """
    size = each.bytes_per_step
    payload = {
        "all_reduce": all_reduce_bytes(size, ranks),
        "all_gather": all_gather_bytes(size, ranks),
        "reduce_scatter": reduce_scatter_bytes(size, ranks, backend),
    }[each.name]
    return payload + each.count_per_step * framing_bytes(each.name, ranks, backend)


def merged(exchanges: Iterable[Exchange]) -> tuple[Exchange, ...]:
    """Adds up exchanges of the same kind, in the order in which the kinds appear."""
    found: dict[str, Exchange] = {}
    for name, count, size in map(dataclasses.astuple, exchanges):
        before = found.get(name, Exchange(name, 0, 0))
        found[name] = Exchange(name, before.count_per_step + count, before.bytes_per_step + size)
    return tuple(found.values())

"""Bytes that a rank sends in a collective, as the backends really do it.

References:
    Patarasuk and Yuan 2009 (the bound of the all-reduce); NVIDIA nccl-tests PERFORMANCE.md.
"""

ITEM_BYTES = {"float32": 4, "float64": 8}


def all_reduce_bytes(size: float, devices: int) -> float:
    """An all-reduce of `size` bytes; the rings of gloo, NCCL and TensorFlow's collectives all reach the bound."""
    return 2 * (devices - 1) / devices * size


def reduce_scatter_bytes(size: float, devices: int, backend: str) -> float:
    """A reduce-scatter of `size` bytes, of which each rank keeps 1/N; gloo's (torch 2.13) is an all-reduce inside."""
    return all_reduce_bytes(size, devices) if backend == "gloo" else (devices - 1) / devices * size


def all_gather_bytes(part: float, devices: int) -> float:
    """An all-gather to which each rank hands over `part` bytes."""
    return (devices - 1) * part


MESSAGE_BYTES = {"memory": 0, "gloo": 144, "nccl": 0, "grpc": 0}
"""What a message costs on the wire beyond its tensor (gloo of torch 2.13: its own preambles), counted by the kernel."""

MESSAGES = {"all_reduce": 4, "reduce_scatter": 4, "all_gather": 2}
"""How many messages each rank sends to each other one in a gloo collective: its rings work in two halves."""


def framing_bytes(collective: str, devices: int, backend: str) -> int:
    """What a collective costs each rank beyond its payload; it counts where tensors are small.

    Args:
        collective: A key of `MESSAGES`.
        devices: The number of ranks.
        backend: A key of `MESSAGE_BYTES`.
    """
    return MESSAGES[collective] * (devices - 1) * MESSAGE_BYTES[backend]

"""How long exchanges between GPUs take on the links of a machine.

An all-reduce of N ranks around rings moves 2(N-1)/N of its bytes through each GPU. Where the ranks span nodes, the adapters of
a node carry the rings of all groups that have members in it.

References:
    Patarasuk and Yuan 2009 (the ring); Narayanan et al., arXiv 2104.04473, section 3 (tensor parallelism across nodes).
"""

from samestep.common.costs.sizes import all_reduce_bytes
from samestep.common.seconds.machine import Machine


def all_reduce_seconds(machine: Machine, size: float, ranks: int, stride: int = 1) -> float:
    """Returns the seconds in which the bytes of an all-reduce are on the links.

    Args:
        machine: What it runs on.
        size: The bytes that are summed.
        ranks: The number of ranks that take part.
        stride: How far apart two of them are; the ranks between them run all-reduces at the same time.
    """
    if ranks == 1:
        return 0.0
    rate = machine.node_bytes_per_second * machine.node_share
    if ranks * stride > machine.gpus_per_node:
        groups = min(stride, machine.gpus_per_node)
        rate = min(rate, machine.network_bytes_per_second * machine.network_share / groups)
    return all_reduce_bytes(size, ranks) / rate


def send_seconds(machine: Machine, size: float, distance: int) -> float:
    """Returns the seconds of a send while all GPUs of a node send as much; both directions run at once.

    Args:
        machine: What it runs on.
        size: The bytes that a GPU sends.
        distance: How far away the receiver is, in ranks.
    """
    if distance < machine.gpus_per_node:
        return size / (machine.node_bytes_per_second * machine.node_share)
    return size * machine.gpus_per_node / (machine.network_bytes_per_second * machine.network_share)


def last_of(ranks: int) -> float:
    """Returns how late the last of several ranks is, if each is late by a random time with mean 1: 1 + 1/2 + ... + 1/N.

    It is the mean of the largest of N exponentially distributed times.

    Args:
        ranks: N.
    """
    return sum(1 / rank for rank in range(1, ranks + 1))

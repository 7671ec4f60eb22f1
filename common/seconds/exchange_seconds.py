"""How long exchanges between GPUs take on the links of a machine.

An all-reduce of N ranks around rings moves 2(N-1)/N of its bytes through each GPU. Where the ranks span nodes, the adapters of
a node carry the rings of all groups that have members in it. In an all-to-all each rank keeps 1/N; what goes to ranks of other
nodes shares the adapters with what all other GPUs of the node send.

References:
    Patarasuk and Yuan 2009 (the ring); Narayanan et al., arXiv 2104.04473, section 3 (tensor parallelism across nodes); NVIDIA
    NCCL, `src/graph/tuning.cc` (seconds of a hop of a ring with the protocol "simple").
"""

import functools

from samestep.common.costs.sizes import all_reduce_bytes
from samestep.common.seconds.machine import Machine

_RING, _NODE_HOP, _NETWORK_HOP = 8.4e-6, 3.4e-6, 14e-6
"""The seconds of a ring by NCCL's own table: to start it, and for each hop over NVLink and over the network."""


def spans_nodes(machine: Machine, ranks: int, stride: int) -> bool:
    """Returns whether a group of ranks does not fit into a node.

    Args:
        machine: The machine that the ranks run on.
        ranks: The number of ranks.
        stride: The distance between two neighbours, in ranks.
    """
    return ranks * stride > machine.gpus_per_node


def all_reduce_seconds(machine: Machine, size: float, ranks: int, stride: int = 1) -> float:
    """Returns the seconds that the bytes of an all-reduce take on the links.

    Args:
        machine: The machine that the ranks run on.
        size: The bytes that are summed.
        ranks: The number of ranks that take part.
        stride: The distance between two neighbours, in ranks; the ranks between them run all-reduces at the same time.
    """
    rate = machine.node_bytes_per_second * machine.node_share
    if spans_nodes(machine, ranks, stride):
        groups = min(stride, machine.gpus_per_node)
        rate = min(rate, machine.network_bytes_per_second * machine.network_share / groups)
    return all_reduce_bytes(size, ranks) / rate


def ring_delay(machine: Machine, ranks: int, stride: int = 1) -> float:
    """Returns the least seconds that a gathering or a reduction around a ring, which visits every rank, takes for any size.

    An all-reduce over many nodes uses trees, whose delay is negligible.

    Args:
        machine: The machine that the ranks run on.
        ranks: The number of ranks that take part.
        stride: The distance between two neighbours, in ranks.
    """
    if ranks == 1:
        return 0.0
    inside = max(1, machine.gpus_per_node // stride)
    nodes = -(-ranks // inside)
    return _RING + (ranks - nodes) * _NODE_HOP + (nodes - 1) * _NETWORK_HOP


def all_to_all_seconds(machine: Machine, size: float, ranks: int, stride: int = 1) -> float:
    """Returns the seconds that the bytes of an all-to-all take on the links; those inside a node and others run at once.

    Args:
        machine: The machine that the ranks run on.
        size: The bytes that a rank has for all ranks, itself included.
        ranks: The number of ranks that take part.
        stride: The distance between two neighbours, in ranks; the ranks between them exchange at the same time.
    """
    inside = min(ranks, max(1, machine.gpus_per_node // stride))
    within = (inside - 1) / ranks * size / (machine.node_bytes_per_second * machine.node_share)
    outside = (ranks - inside) / ranks * size * machine.gpus_per_node
    return max(within, outside / (machine.network_bytes_per_second * machine.network_share))


def send_seconds(machine: Machine, size: float, distance: int, num_gpus: int) -> float:
    """Returns the seconds of a send while all GPUs send the same amount; both directions run at once.

    A pipeline moves at the pace of its slowest link. If its GPUs span nodes, that is a link between two nodes. The
    number of a node's GPUs that send to another node is the distance of the receivers in ranks, and at most all of
    them.

    Args:
        machine: The machine that the GPUs are in.
        size: The bytes that a GPU sends.
        distance: How far away the receiver is, in ranks.
        num_gpus: The number of GPUs.
    """
    within = size / (machine.node_bytes_per_second * machine.node_share) if distance < machine.gpus_per_node else 0.0
    crossing = min(distance, machine.gpus_per_node) if num_gpus > machine.gpus_per_node else 0
    return max(within, crossing * size / (machine.network_bytes_per_second * machine.network_share))


@functools.lru_cache(maxsize=256)
def last_of(ranks: int) -> float:
    """Returns how late the last of N ranks is on average, if each is late by a random time with mean 1: 1 + 1/2 + ... + 1/N.

    It is the mean of the largest of N exponentially distributed times.

    Args:
        ranks: N.
    """
    return sum(1 / rank for rank in range(1, ranks + 1))

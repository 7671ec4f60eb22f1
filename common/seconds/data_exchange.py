"""The seconds of exchanges of gradients and parameters between replicas and shards that no computation hides.

An all-reduce is a reduction and a gathering. Fully sharded parameters are gathered for the forward and for the backward pass of
each micro-batch, in a pipeline once a step; gradients are reduced once a step.

A pass hides exchanges for as long as it computes, on each link separately: exchanges inside a node and between nodes run at
once. Those of the first block are not hidden. While they run, some of the processors of a GPU move bytes and do not compute.

References:
    Rajbhandari et al., arXiv 1910.02054, section 7; Zhao et al., arXiv 2304.11277, section 3.3 (FSDP); DeepSeek-AI, arXiv
    2412.19437, section 3.5 (20 of 132 processors communicate).
"""

from collections.abc import Mapping
from typing import NamedTuple

from samestep.common.seconds.exchange_seconds import all_reduce_seconds, ring_delay, spans_nodes
from samestep.common.seconds.layout import Layout, SumGroup
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.products import ITEM

Links = Mapping[str, float]
"""Link, "node" or "network" -> seconds."""
_EXCHANGE_PROCESSORS = 20
"""The number of processors of a GPU that exchange while the others compute."""
_BROADCASTS = 1
"""The broadcasts of ZeRO-1 after the update, in halves of an all-reduce: `zero.py` has the calculation."""


class Computed(NamedTuple):
    """The passes of a stage, which hide exchanges.

    Attributes:
        layers: The number of its blocks, each of which is exchanged separately.
        forward: Seconds that the forward pass of a micro-batch computes.
        backward: Seconds that the backward pass of a micro-batch computes.
        links: Seconds in which the passes keep a link busy themselves.
    """

    layers: int
    forward: float
    backward: float
    links: Links


def data_exchange(layout: Layout, sizes: Mapping[SumGroup, float], passes: Computed, machine: Machine) -> float:
    """Returns the seconds by which exchanges of gradients and shards make a step longer.

    Args:
        layout: How the step is spread.
        sizes: Group of GPUs that share parameters -> how many of these parameters a GPU would hold unsharded.
        passes: The passes of a micro-batch.
        machine: The machine that it runs on.
    """
    halves, count = _halves(layout, sizes, passes.layers, machine), layout.microbatches
    gathers = count if layout.pipe == 1 else 1
    is_whole, has_shards = layout.sharding == 3, layout.shard > 1
    if not layout.overlaps:
        among_shards = 2 if layout.sharding == 2 else 1 + 2 * gathers
        among_replicas = (2, 2 + _BROADCASTS, 2, 1 + 2 * gathers)[layout.sharding]
        return sum(halves[True].values()) * among_shards + sum(halves[False].values()) * among_replicas
    each = halves[True] if has_shards else halves[False] if layout.sharding >= 2 else {}
    summed = {link: halves[True].get(link, 0.0) + halves[False].get(link, 0.0) for link in ("node", "network")}
    if not is_whole and (has_shards or layout.sharding < 2):  # replicas all-reduce
        summed = {link: seconds + halves[False].get(link, 0.0) for link, seconds in summed.items()}
    again = each if is_whole or has_shards else {}
    last = {link: seconds + again.get(link, 0.0) for link, seconds in summed.items()}
    added = count * _added(each, passes.forward, passes, machine)
    added += (count - 1) * _added(again, passes.backward, passes, machine)
    behind = _BROADCASTS * sum(halves[False].values()) if layout.sharding == 1 else 0.0
    return added + _added(last, passes.backward, passes, machine) + behind


def _halves(
    layout: Layout, sizes: Mapping[SumGroup, float], layers: int, machine: Machine
) -> dict[bool, dict[str, float]]:
    """Returns the seconds of a gathering or a reduction on each link: True among shards, False among replicas."""
    found = {is_shard: {"node": 0.0, "network": 0.0} for is_shard in (True, False)}
    for group, params in sizes.items():
        for is_shard, size, ranks, stride in (
            (True, params, group.shards, group.shard_stride),
            (False, params / group.shards, group.replicas, group.replica_stride),
        ):
            link = "network" if spans_nodes(machine, ranks, stride) else "node"
            seconds = all_reduce_seconds(machine, ITEM * size, ranks, stride) / 2
            if is_shard or layout.sharding >= 2:
                seconds += (layers + 1) * ring_delay(machine, ranks, stride)
            found[is_shard][link] += seconds
    return found


def _added(links: Links, computed: float, passes: Computed, machine: Machine) -> float:
    """Returns the seconds by which exchanges prolong a pass that computes at the same time."""
    slower, share = _EXCHANGE_PROCESSORS / machine.processors, computed / (passes.forward + passes.backward)
    added = [0.0]
    for link, seconds in links.items():
        others = sum(busy for other, busy in passes.links.items() if other != link) * share
        added.append(max(seconds / (passes.layers + 1), seconds * slower, seconds - computed - others))
    return max(added)

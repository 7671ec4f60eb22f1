"""The seconds of a step on the cores of several hosts: everything that leaves a host has to pass its link.

Hosts are filled one after the other. Each has one link, which sends and receives at once. A part of a step takes as long as the
slower of two things: its exchanges between processes of one host, as they were measured, and what the busiest host sends or
receives, at the rate of its link. Computation is assumed to hide nothing: the bucket with the first layers' gradients is the
last to be ready.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from samestep.common.costs.routes import links, sends_by_place
from samestep.common.flag_words import read_bandwidth
from samestep.common.flags import FieldValues
from samestep.common.ledger import Send
from samestep.common.seconds.core_time import PART_OF_AXIS, axis_of
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.step_time import StepTime
from samestep.common.strategy import Run

PAYLOAD = 1448 / 1538
"""The bytes that TCP carries in a full frame of Ethernet, over those that the frame takes on the link: IEEE 802.3's preamble,
header, checksum and gap are 38, and the headers of IP and TCP with time stamps 52 of the other 1,500."""


def with_links(machine: Machine, bandwidth: str) -> Machine:
    """Returns a machine as one of several that are linked to each other.

    Args:
        machine: The measurements of one machine alone.
        bandwidth: The rate of each machine's link in either direction, such as 1gbit.

    Raises:
        ConfigError: No link has that bandwidth.
    """
    given = {"network_bytes_per_second": read_bandwidth(bandwidth) / 8, "network_share": PAYLOAD}
    sources = {
        "network_bytes_per_second": f"--bandwidth {bandwidth}",
        "network_share": "TCP in full frames of Ethernet",
    }
    title = f"{machine.title}, each with a link of {bandwidth}"
    return dataclasses.replace(machine, title=title, sources={**machine.sources, **sources}, **given)


def over_hosts(time: StepTime, passed: Mapping[str, float], machine: Machine) -> StepTime:
    """Returns the parts of a step whose processes are on several hosts.

    Args:
        time: The parts if all processes were on one host.
        passed: What passes the link of the busiest host, as `busiest` returns it.
        machine: A host, with the rate of its link.
    """
    rate, parts = machine.network_bytes_per_second * machine.network_share, time.parts()
    linked = {PART_OF_AXIS[axis]: size / rate for axis, size in passed.items()}
    slower: FieldValues = {name: max(parts[name], seconds) for name, seconds in linked.items()}
    return dataclasses.replace(time, **slower)


def busiest(run: Run, per_host: int) -> dict[str, float]:
    """Returns the bytes that the busiest host sends to others or receives from them in a step, for each axis; {} for one host.

    Args:
        run: What is predicted.
        per_host: The devices of a host.
    """
    if run.num_devices <= per_host:
        return {}
    backend = run.strategy.backend
    passed: collections.Counter[tuple[str, int, bool]] = collections.Counter()
    for place, sends in enumerate(sends_by_place(run, run.strategy.cost(run, backend), backend)):
        for send in _together(sends):
            for source, to, size in links(run, backend, place, [send]):
                if source // per_host != to // per_host:
                    passed[axis_of(send), source // per_host, True] += size  # pyrefly: ignore
                    passed[axis_of(send), to // per_host, False] += size  # pyrefly: ignore
    most = dict[str, float]()
    for (axis, _, _), size in passed.items():
        most[axis] = max(most.get(axis, 0.0), size)
    return most


def _together(sends: Sequence[Send]) -> Iterator[Send]:
    """Merges sends that go the same way, and so over the same links, into one record each."""
    alike: dict[tuple[object, ...], list[Send]] = {}
    for send in sends:
        way = (send.operation, send.group, send.ranks, send.to, send.source, axis_of(send))
        alike.setdefault(way, []).append(send)
    for first, *others in alike.values():
        size, count = (
            getattr(first, name) + sum(getattr(each, name) for each in others) for name in ("bytes", "count")
        )
        yield dataclasses.replace(first, bytes=size, count=count)

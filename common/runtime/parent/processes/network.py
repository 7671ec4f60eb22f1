"""Starts the processes of a run on one machine, all of them or none, and decides their addresses and who can reach them."""

import contextlib
import dataclasses
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.errors import Unavailable
from samestep.common.request import Launch
from samestep.common.runtime.link_addresses import DEVICE, MAX_LINKED, address
from samestep.common.runtime.parent.processes.following import Progress
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.parent.processes.watch import ProcessWatch
from samestep.common.runtime.process_file import forget
from samestep.common.runtime.topology import bypass_proxies, fill_in
from samestep.common.strategy import ProcessSpec, Run

HOST = "127.0.0.1"
FIRST_PRIVATE_PORT = 10000
"""The first port to assign in a private network, where all are free; outgoing connections use higher ones."""


def free_ports(count: int) -> list[int]:
    """Finds ports on the loopback that are free at this moment.

    Raises:
        Unavailable: There is no loopback.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        try:
            for each in sockets:
                each.bind((HOST, 0))
            sockets[0].listen()
            with socket.create_connection(sockets[0].getsockname(), timeout=5):
                return [each.getsockname()[1] for each in sockets]
        except OSError as error:
            raise Unavailable(
                f"processes cannot meet at {HOST} ({error.strerror or error}); the loopback must be up and have this "
                "address: ip link set lo up"
            ) from None


@dataclasses.dataclass(frozen=True)
class Rendezvous:
    """Where the processes of a run find each other.

    Attributes:
        addresses: Host and port of each process, in the topology's order.
        private: Whether they are in a private network.
        environment: Further environment variables for each process.
    """

    addresses: Sequence[tuple[str, int]] = ()
    private: bool = False
    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: bypass_proxies([HOST], os.environ))


def meet(server: ForkClient, danger: str, specs: Sequence[ProcessSpec], bandwidth: str | None) -> Rendezvous:
    """Decides where the processes of a run find each other.

    Args:
        server: The server that will start them.
        danger: What others can do to the run if the machine allows no private network; see `isolate`.
        specs: The processes. If none connects to another, they need no addresses.
        bandwidth: What each link carries, as in 200mbit; None if the processes share a loopback.

    Raises:
        Unavailable: This machine has no such network.
    """
    if not any(spec.environment for spec in specs):
        return Rendezvous()
    if bandwidth is None:
        return isolate(server, danger, len(specs))
    from samestep.common.flag_words import read_bandwidth  # here: few runs have links of their own

    return link(server, len(specs), read_bandwidth(bandwidth))


def isolate(server: ForkClient, danger: str, count: int) -> Rendezvous:
    """Makes a private network for a run. If the machine allows none, it prints who can connect to the run's ports.

    Args:
        server: The server that will start the run's processes.
        danger: What others can do to the run in that case, as in `StrategyInfo.danger_of_open_ports`; "" prints nothing.
        count: How many processes the run has.

    Raises:
        Unavailable: There is neither a private network nor a loopback.
    """
    reason = server.make_network()
    if not reason:
        return Rendezvous([(HOST, FIRST_PRIVATE_PORT + place) for place in range(count)], True)
    ports = free_ports(count)
    if danger:
        named = danger.format(ports=f"TCP port{'s' if len(ports) > 1 else ''} {', '.join(map(str, ports))}")
        print(
            f"samestep: no private network here ({reason}): until this run ends, {named}; see docs/security.md",
            file=sys.stderr,
        )
    return Rendezvous([(HOST, port) for port in ports])


def link(server: ForkClient, count: int, bits_per_second: int) -> Rendezvous:
    """Makes a private network in which each process has its own link to the others.

    Args:
        server: The server that will start the run's processes.
        count: How many processes the run has.
        bits_per_second: What each link carries in either direction.

    Raises:
        Unavailable: This machine allows none.
    """
    if count > MAX_LINKED:
        raise Unavailable(f"--bandwidth links at most {MAX_LINKED} processes, and the run has {count}.")
    if reason := server.make_network(count, bits_per_second):
        raise Unavailable(f"no links for --bandwidth here ({reason}); leave out --bandwidth, or see docs/measuring.md")
    addresses = [(address(place), FIRST_PRIVATE_PORT) for place in range(count)]
    names = dict.fromkeys(("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), DEVICE)
    return Rendezvous(addresses, True, {**bypass_proxies((host for host, _ in addresses), os.environ), **names})


def start(
    directory: Path,
    run: Run,
    launch: Launch,
    server: ForkClient,
    environment: Mapping[str, str],
    progress: Progress | None,
) -> ProcessWatch:
    """Starts the processes of a run; returns the watch over them.

    Args:
        directory: The run directory.
        run: The run.
        launch: How to start it.
        server: The fork server that starts the processes.
        environment: Variables to add to the environment of every process.
        progress: Called at every window's end.
    """
    specs = run.strategy.topology(run)
    rendezvous = meet(server, run.strategy.danger_of_open_ports, specs, launch.bandwidth)
    independent = not run.strategy.synchronous(run.options)
    for spec in specs:
        forget(directory, spec.role)
    watch = ProcessWatch(directory, run.framework, launch.timeout_seconds, server, {}, progress, independent)
    try:
        for place, spec in enumerate(specs):
            own = {**rendezvous.environment, **environment, **fill_in(spec, rendezvous.addresses)}
            log = directory / f"{spec.role}.log"
            watch.processes[server.start_worker(directory, log, own, place if rendezvous.private else None)] = spec
    except BaseException:
        watch.stop()
        raise
    return watch

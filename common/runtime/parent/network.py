"""Addresses for the processes of one machine, and who can reach them there."""

import contextlib
import os
import socket
import sys
from collections.abc import Sequence

from samestep.common.catalog import framework_info
from samestep.common.errors import Unavailable
from samestep.common.runtime.parent.fork_client import ForkClient

HOST = "127.0.0.1"


FIRST_PRIVATE_PORT = 10000
"""Every port of a private network is free; connections take theirs from above these."""


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


def bypass_proxies() -> dict[str, str]:
    """The environment in which a worker connects to its peers directly, even where `http_proxy` is set: gRPC obeys it."""
    return {name: ",".join(filter(None, [os.environ.get(name), HOST])) for name in ("no_proxy", "NO_PROXY")}


def isolate(server: ForkClient, framework: str, count: int) -> tuple[bool, Sequence[int]]:
    """Makes a private network for a run. Where the machine allows none, prints who can connect to the run's ports.

    Args:
        server: Will start the run's processes.
        framework: A key of FRAMEWORKS.
        count: How many ports the run listens on.

    Returns:
        Whether there is a private network, and the ports.

    Raises:
        Unavailable: There is neither a private network nor a loopback.
    """
    reason = server.make_network()
    if not reason:
        return True, range(FIRST_PRIVATE_PORT, FIRST_PRIVATE_PORT + count)
    ports = free_ports(count)
    danger = framework_info(framework).danger_of_open_ports
    if danger:
        numbers = ", ".join(map(str, ports))
        print(
            f"samestep: no private network here ({reason}): until this run ends, whoever can reach this machine can "
            f"connect to TCP port{'s' if len(ports) > 1 else ''} {numbers} and {danger}; see docs/security.md",
            file=sys.stderr,
        )
    return False, ports

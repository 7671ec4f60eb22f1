"""Links of a chosen bandwidth: each process of a run is in its own network, with a cable to a switch.

A cable is a pair of virtual Ethernet devices, and the switch is a bridge. A token bucket at each end of a cable limits the bits
per second in each direction. A shaped loopback would be one medium that all processes share.

References:
    veth(4), tc-tbf(8), capabilities(7) on ambient capabilities.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable

from samestep.common.runtime.link_addresses import DEVICE, address

_CAP_NET_ADMIN = 12
_CAPABILITY_VERSION_3 = 0x20080522
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
SWITCH = "switch"
MTU = 9000
"""The bytes of a frame, as in clusters: headers take 1 % of it, instead of 5 % of the usual 1,500."""
PROGRAMS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
"""The folders in which `ip` and `tc` are searched, since an ordinary user's PATH often lacks theirs."""
_BURST_SECONDS, _LEAST_BURST = 0.001, 2**15
"""A bucket holds what a link carries in a millisecond, but at least three frames. A step sends far more than that."""
_QUEUE_BYTES = 2**26
"""The length of a queue, more than TCP has in flight, so nothing is dropped."""


def connect(count: int, bits_per_second: int, leave_network: Callable[[], None]) -> list[int]:
    """Makes a network for each process, with a link to a switch in the current process's network.

    Args:
        count: The number of processes.
        bits_per_second: What each link carries, in either direction.
        leave_network: Moves the calling process into a new network.

    Returns:
        A descriptor of each network; process i has the address `address(i)` in it.

    Raises:
        OSError: The kernel or the container forbids it, or the programs `ip` and `tc` are missing.
    """
    _let_programs_administer()
    _run("ip", "link", "add", "name", SWITCH, "type", "bridge")
    _run("ip", "link", "set", SWITCH, "up")
    networks: list[int] = []
    try:
        for place in range(count):
            networks.append(_connect(place, bits_per_second, leave_network))
    except OSError:
        for network in networks:
            os.close(network)
        raise
    return networks


def _connect(place: int, bits_per_second: int, leave_network: Callable[[], None]) -> int:
    """Makes the network of one process. A child process keeps it open until its cable is there."""
    (told, tell), (heard, say) = os.pipe(), os.pipe()
    if (child := os.fork()) == 0:
        code = 1
        try:
            os.close(tell)
            leave_network()
            os.write(say, b"left")
            if os.read(told, 1):
                _run("ip", "address", "add", f"{address(place)}/16", "dev", DEVICE)
                _shape(DEVICE, bits_per_second)
                code = 0
        except OSError as error:
            os.write(say, (error.strerror or str(error)).encode())
        finally:
            os._exit(code)
    for end in (told, say):
        os.close(end)
    try:
        if (reason := os.read(heard, 4096)) != b"left":
            raise OSError(reason.decode() or "a network could not be made")
        end = f"link{place}"
        _run("ip", "link", "add", "name", end, "type", "veth", "peer", "name", DEVICE, "netns", str(child))
        _run("ip", "link", "set", end, "master", SWITCH)
        _shape(end, bits_per_second)
        network = os.open(f"/proc/{child}/ns/net", os.O_RDONLY)
        os.write(tell, b".")
        if reason := os.read(heard, 4096):
            os.close(network)
            raise OSError(reason.decode())
        return network
    finally:
        os.close(tell)
        os.close(heard)
        os.waitpid(child, 0)


def _shape(device: str, bits_per_second: int) -> None:
    _run("ip", "link", "set", device, "mtu", str(MTU), "up")
    burst = max(_LEAST_BURST, int(bits_per_second / 8 * _BURST_SECONDS))
    rate = ("rate", f"{bits_per_second}bit", "burst", str(burst), "limit", str(_QUEUE_BYTES))
    _run("tc", "qdisc", "add", "dev", device, "root", "tbf", *rate)


def _run(*line: str) -> None:
    program = shutil.which(line[0], path=PROGRAMS)
    if program is None:
        raise OSError(f"the program {line[0]} is missing; install the package iproute2")
    done = subprocess.run([program, *line[1:]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(line[:3])}: {done.stderr.strip() or f'exit code {done.returncode}'}")


def _let_programs_administer() -> None:
    """Lets programs that are started from here administer networks; an ordinary user's would otherwise lose the capability."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable of the capabilities 0 to 31, then of the others
    if libc.capget(header, data) == 0:
        data[2] |= 1 << _CAP_NET_ADMIN
        libc.capset(header, data)
        libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_NET_ADMIN, 0, 0)

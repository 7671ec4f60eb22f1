"""A private network for the processes of one run: a Linux network namespace with a loopback and nothing else.

Alternatively, each process has its own namespace, with a link of a chosen bandwidth to the others.

The servers inside a framework do not authenticate their clients, and some of them listen on every address of the machine. In a
private network, only the run's processes can connect to them.

References:
    network_namespaces(7), user_namespaces(7), setns(2); `os.unshare` and `os.setns` came with Python 3.12.
"""

import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from samestep.common.runtime.link_addresses import MAX_LINKED
from samestep.common.runtime.worker import links
from samestep.common.runtime.worker.child_processes import end_with_parent

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_USED_UP = "namespaces are used up or forbidden: sysctl user.max_net_namespaces"
_CAPABILITY_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)
_REQUEST = struct.Struct("iq")


class Network(NamedTuple):
    """A network. It lasts as long as one of its descriptors is open or a process is in it.

    Attributes:
        entries: For each process the descriptors of the namespaces to enter, in this order; one entry for all processes if
            they share a network.
        switch: The descriptor of the network that links the others, if there is one.
    """

    entries: Sequence[Sequence[int]]
    switch: Sequence[int] = ()

    def entry(self, place: int) -> Sequence[int]:
        """Returns the namespaces that the process at a place of the topology has to enter."""
        return self.entries[place if len(self.entries) > 1 else 0]

    def close(self) -> None:
        """Closes every descriptor."""
        for descriptor in {descriptor for entry in (*self.entries, self.switch) for descriptor in entry}:
            os.close(descriptor)


class NetworkMaker:
    """A small process that makes private networks. Forking a process that has imported a framework would take far longer."""

    def __init__(self) -> None:
        """Starts the process. It ends once its socket is closed everywhere else, or with the present process."""
        self._asking, answering = socket.socketpair()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            end_with_parent(parent, signal.SIGKILL)
            self._asking.close()
            _answer_requests(answering)
        answering.close()

    def make(self, linked: int = 0, bits_per_second: int = 0) -> Network:
        """Makes a private network.

        Args:
            linked: How many processes get their own network, at most `MAX_LINKED`; with 0, all share one.
            bits_per_second: What the link of each carries in either direction.

        Raises:
            OSError: The kernel or the container forbids it.
        """
        self._asking.send(_REQUEST.pack(linked, bits_per_second))
        said, descriptors, _, _ = socket.recv_fds(self._asking, 4096, MAX_LINKED + 2)
        if not descriptors:
            raise OSError(said.decode() or "the process that makes it died")
        if not linked:
            return Network([descriptors])
        switch, *own = descriptors[len(descriptors) - linked - 1 :]
        user = descriptors[: len(descriptors) - linked - 1]
        return Network([[*user, network] for network in own], [switch])


def enter_network(namespaces: Sequence[int]) -> None:
    """Moves the current process, which has one thread, into a private network.

    Args:
        namespaces: The descriptors that `Network.entry` returns.
    """
    for descriptor in namespaces:
        _call(_libc.setns, descriptor, 0)
    if len(namespaces) > 1:  # a user namespace grants every capability, even over one's own read-only files
        _call(_libc.capset, struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24))


def _answer_requests(answering: socket.socket) -> NoReturn:
    """Answers each request with the descriptors of new namespaces, or with the reason why there are none."""
    try:
        os.closerange(0, 2)  # the pipes of a fork server
        namespaces = ["net"]
        while request := answering.recv(_REQUEST.size):
            descriptors: list[int] = []
            try:
                linked, bits_per_second = _REQUEST.unpack(request)
                namespaces = _leave_network(namespaces)
                descriptors += [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in namespaces]
                if linked:
                    descriptors += links.connect(linked, bits_per_second, _enter_new_network)
                socket.send_fds(answering, [b"made"], descriptors)
            except OSError as error:
                answering.send(_reason(error).encode())
            for descriptor in descriptors:
                os.close(descriptor)
    finally:
        os._exit(0)


def _reason(error: OSError) -> str:
    """Returns why there is no namespace. If they are used up, the kernel reports that no space is left on a device."""
    return _USED_UP if error.errno == errno.ENOSPC else error.strerror or str(error)


def _leave_network(namespaces: list[str]) -> list[str]:
    """Moves this process into a new network, whose loopback is up.

    Args:
        namespaces: The names of the namespaces to enter so far.

    Returns:
        The names of the namespaces to enter from now on.
    """
    try:
        _enter_new_network()
    except PermissionError:  # anyone may in a user namespace, where files keep their owner
        uid, gid = os.geteuid(), os.getegid()
        _call(_libc.unshare, _CLONE_NEWUSER | _CLONE_NEWNET)
        for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            Path("/proc/self", name).write_text(line)
        namespaces = ["user", "net"]
        _raise_loopback()
    return namespaces


def _enter_new_network() -> None:
    _call(_libc.unshare, _CLONE_NEWNET)
    _raise_loopback()


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inside:
        fcntl.ioctl(inside, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


def _call(function: Callable[..., int], *arguments: object) -> None:
    """Calls a function of the C library; raises OSError if it fails."""
    if function(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

"""A private network for the processes of one run: a Linux network namespace with a loopback and nothing else.

The servers inside a framework ask nobody who they are, and some of them listen on every address of the machine. In a
namespace of the run's own, only the run's processes can connect to them.

References:
    network_namespaces(7), user_namespaces(7), setns(2); `os.unshare` and `os.setns` came with Python 3.12.
"""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_CAPABILITY_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkMaker:
    """A small process that makes private networks; to fork it from one that has imported a framework takes far longer."""

    def __init__(self) -> None:
        """Starts it. It ends once nobody can ask any more."""
        self._asking, answering = socket.socketpair()
        if os.fork() == 0:
            self._asking.close()
            _answer_requests(answering)
        answering.close()

    def make(self) -> Sequence[int]:
        """Makes a private network.

        Returns:
            Descriptors of the namespaces to enter, in this order. The network lasts as long as one of them, or a process
            in it.

        Raises:
            OSError: The kernel or the container forbids it.
        """
        self._asking.send(b"?")
        said, namespaces, _, _ = socket.recv_fds(self._asking, 4096, 2)
        if not namespaces:
            raise OSError(said.decode() or "the process that makes it died")
        return namespaces


def enter_network(namespaces: Sequence[int]) -> None:
    """Moves the present process, which has one thread, into a private network.

    Args:
        namespaces: From `NetworkMaker.make`.
    """
    for descriptor in namespaces:
        _call(_libc.setns, descriptor, 0)
    if len(namespaces) > 1:  # a user namespace grants every capability in it: over one's own read-only files, too
        _call(_libc.capset, struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24))


def _answer_requests(answering: socket.socket) -> NoReturn:
    """Sends the descriptors of new namespaces, or the reason why there are none, as often as somebody asks."""
    try:
        os.closerange(0, 2)  # the pipes of a fork server
        namespaces = ["net"]
        while answering.recv(1):
            try:
                namespaces = _leave_network(namespaces)
                descriptors = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in namespaces]
                socket.send_fds(answering, [b"made"], descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
            except OSError as error:
                answering.send((error.strerror or str(error)).encode())
    finally:
        os._exit(0)


def _leave_network(namespaces: list[str]) -> list[str]:
    """Moves this process into a new network, whose loopback is up.

    Args:
        namespaces: The names of those to enter so far.

    Returns:
        The names of those to enter from now on.
    """
    try:
        _call(_libc.unshare, _CLONE_NEWNET)
    except PermissionError:  # in a user namespace, where files keep their owner, everybody may
        uid, gid = os.geteuid(), os.getegid()
        _call(_libc.unshare, _CLONE_NEWUSER | _CLONE_NEWNET)
        for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            Path("/proc/self", name).write_text(line)
        namespaces = ["user", "net"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inside:
        fcntl.ioctl(inside, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
    return namespaces


def _call(function: Callable[..., int], *arguments: object) -> None:
    """Calls a function of the C library; raises OSError if it fails."""
    if function(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

"""The usage endpoint of a process that only serves: it shows that it is alive, and answers rank 0 what it has sent.

It answers on a Unix socket without a file, so no answer counts as traffic. The socket's name is random and stands in the
process's file, so nobody can take it first, and only processes of the same user get an answer. The socket does not reach
other machines; what a process there sends is unknown.
"""

import json
import os
import resource
import secrets
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from samestep.common.files.reading import Unreadable, parse_json
from samestep.common.runtime.link_addresses import DEVICE
from samestep.common.runtime.process_file import ProcessFile, read_life
from samestep.common.runtime.worker.wire import tcp_bytes

_MOST_CHARACTERS = 4096
"""Of an answer: six numbers."""
ANSWER_SECONDS = 1.0
"""A suspended process (SIGSTOP) never answers."""


class Counters(NamedTuple):
    """What a process has used since it started.

    Attributes:
        sent_bytes: The bytes sent over TCP.
        received_bytes: The bytes received over TCP.
        peak_rss_bytes: The most memory it has had.
        cpu_seconds: The time that its threads had a core.
        sent_away_bytes: The part of `sent_bytes` that went to other hosts.
        received_away_bytes: The part of `received_bytes` that came from them.
    """

    sent_bytes: int
    received_bytes: int
    peak_rss_bytes: int
    cpu_seconds: float = 0.0
    sent_away_bytes: int = 0
    received_away_bytes: int = 0


def serve(file: ProcessFile, beat_seconds: float, is_over: Callable[[], bool]) -> None:
    """Answers until the run is over, or the process is ended from outside; the framework serves on threads of its own.

    Args:
        file: The file of the present process.
        beat_seconds: How often it shows that it is alive.
        is_over: Whether the run is over, which is looked at as often.
    """
    with socket.socket(socket.AF_UNIX) as listening:
        file.endpoint = _endpoint()
        listening.bind(_address(file.endpoint))
        listening.listen()
        listening.settimeout(beat_seconds)
        file.enter("serve")
        while not is_over():
            file.beat(0)
            try:
                asking, _ = listening.accept()
                with asking:
                    if _uid_of(asking) == os.geteuid():
                        asking.sendall(json.dumps(count()).encode())
            except OSError:
                continue  # nobody asked, or nobody waited for the answer


def count(sends: bool = True) -> Counters:
    """Reads the counters of the present process.

    Args:
        sends: Whether to ask its connections one by one what they have carried.
    """
    sent, received, *away = tcp_bytes() if sends else (0, 0)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Counters(sent, received, used.ru_maxrss * 1024, used.ru_utime + used.ru_stime, *away)


def ask(directory: Path, role: str) -> Counters | None:
    """Asks a process that serves for its counters; None if it does not answer.

    Args:
        directory: The run directory.
        role: The role of the process.
    """
    endpoint = read_life(directory, role).endpoint
    if not endpoint:
        return None
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(ANSWER_SECONDS)
            asking.connect(_address(endpoint))
            with asking.makefile() as answer:
                return Counters(*parse_json(answer.read(_MOST_CHARACTERS)))  # pyrefly: ignore
    except (OSError, ValueError, TypeError, Unreadable):
        return None


def _endpoint() -> str:
    """Makes a new name. Where each process has a network of its own it is a path: other names are known in one network only."""
    name = f"samestep-{secrets.token_hex(16)}"
    linked = DEVICE in (device for _, device in socket.if_nameindex())
    return str(Path(tempfile.gettempdir(), name)) if linked else name


def _address(endpoint: str) -> str:
    """Makes the address: a path, or a name in Linux's abstract namespace, which starts with a zero byte and leaves no file."""
    return endpoint if os.path.isabs(endpoint) else f"\0{endpoint}"


def _uid_of(asking: socket.socket) -> int:
    """Asks the kernel for the user at the other end (`struct ucred`: pid, uid, gid)."""
    _, uid, _ = struct.unpack("iII", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid

"""The usage endpoint of a process that only serves, which shows that it is alive and reports to rank 0 what it has sent.

It answers on a Unix socket without a file. The socket's name is random and is in the process's file, so nobody can take it
first, and only processes of the same user get an answer. If a run has several hosts, it answers on a port instead, to anyone
who sends the random word that is in the process's file. No answer counts as traffic, since rank 0 closes the connection before
it counts its own, and the process counts before it asks for the word.

The kernel counts the bytes that each process sends, so this needs neither root nor help from the framework.

References:
    `struct tcp_info` in Linux `include/uapi/linux/tcp.h` (4.19 and later): state at byte 0, tcpi_bytes_received at 128,
    tcpi_bytes_sent at 200, of which tcpi_bytes_retrans at 208 were sent again.
"""

import contextlib
import hmac
import json
import os
import resource
import secrets
import socket
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from samestep.common.files.reading import Unreadable, parse_json
from samestep.common.runtime.link_addresses import DEVICE
from samestep.common.runtime.process_file import ProcessFile, read_life

_MOST_CHARACTERS = 4096
"""The most characters of an answer, which is six numbers."""
ANSWER_SECONDS = 5.0
"""How long to wait for an answer, which takes over a second on a busy machine; a suspended process (SIGSTOP) never answers."""
_PORT, _WORD_BYTES, _WORD = "tcp:", 32, b"?"
"""The prefix of an endpoint that is a port, the length of the word at its end, and the request for the word."""
_TCP_INFO_BYTES = 256
_ESTABLISHED = 1
_RECEIVED_AT, _SENT_AT, _SENT_AGAIN_AT = 128, 200, 208
Carried = tuple[int, int, int, int]
"""The bytes sent and received, and the parts of both that went to other hosts and came from them."""


class Counters(NamedTuple):
    """The resources that a process has used since it started.

    Attributes:
        sent_bytes: The bytes sent over TCP.
        received_bytes: The bytes received over TCP.
        sent_away_bytes: The part of `sent_bytes` that went to other hosts.
        received_away_bytes: The part of `received_bytes` that came from other hosts.
        peak_rss_bytes: The most resident memory it has had.
        cpu_seconds: The time that its threads were on a core.
    """

    sent_bytes: int
    received_bytes: int
    sent_away_bytes: int = 0
    received_away_bytes: int = 0
    peak_rss_bytes: int = 0
    cpu_seconds: float = 0.0


def serve(file: ProcessFile, beat_seconds: float, is_over: Callable[[], bool], address: str = "") -> None:
    """Answers until the run is over, or the process is ended from outside; the framework serves on its own threads.

    Args:
        file: The file of the present process.
        beat_seconds: The interval at which it shows that it is alive.
        is_over: Returns whether the run is over; it is called at the same interval.
        address: The address at which other hosts of the run reach this one; "" if there are none.
    """
    with socket.socket(socket.AF_INET if address else socket.AF_UNIX) as listening:
        file.endpoint = _open_port(listening, address) if address else _open_name(listening)
        listening.listen()
        listening.settimeout(beat_seconds)
        file.enter("serve")
        while not is_over():
            file.beat(0)
            with contextlib.suppress(OSError):  # nobody asked, or nobody waited for the answer
                asking, _ = listening.accept()
                with asking:
                    found = count()
                    asking.settimeout(ANSWER_SECONDS)
                    if _may_ask(asking, file.endpoint):
                        asking.sendall(json.dumps(found).encode())


def _open_port(listening: socket.socket, address: str) -> str:
    """Binds to a free port; returns the endpoint."""
    listening.bind((address, 0))
    return f"{_PORT}{address}:{listening.getsockname()[1]}:{secrets.token_hex(_WORD_BYTES // 2)}"


def _open_name(listening: socket.socket) -> str:
    """Binds to a new name; returns the endpoint."""
    listening.bind(_address(name := _new_name()))
    return name


def _may_ask(asking: socket.socket, endpoint: str) -> bool:
    """Returns whether a client belongs to the same user or, on a port, knows the word."""
    if asking.family == socket.AF_UNIX:
        return _uid_of(asking) == os.geteuid()
    asking.sendall(_WORD)
    return hmac.compare_digest(asking.recv(_WORD_BYTES), endpoint.rpartition(":")[2].encode())


def count(sends: bool = True) -> Counters:
    """Reads the counters of the current process.

    Args:
        sends: Whether to read how many bytes each of its connections has carried.
    """
    carried, used = tcp_bytes() if sends else (0, 0, 0, 0), resource.getrusage(resource.RUSAGE_SELF)
    return Counters(*carried, used.ru_maxrss * 1024, used.ru_utime + used.ru_stime)


def tcp_bytes() -> Carried:
    """Adds up the bytes sent and received so far on every established TCP socket of this process, each byte once.

    Both ends of a connection within a host have the same address there.

    Returns:
        The sums; zeros where the system does not report them.
    """
    sent = received = sent_away = received_away = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
                    continue
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                is_away = copy.getsockname()[0] != copy.getpeername()[0]
        except OSError:
            continue  # closed since it was listed
        if len(info) >= _SENT_AGAIN_AT + 8 and info[0] == _ESTABLISHED:
            out, back = _number(info, _SENT_AT) - _number(info, _SENT_AGAIN_AT), _number(info, _RECEIVED_AT)
            sent, received = sent + out, received + back
            sent_away, received_away = sent_away + is_away * out, received_away + is_away * back
    return sent, received, sent_away, received_away


def _number(info: bytes, at: int) -> int:
    return int.from_bytes(info[at : at + 8], "little")


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
        with _connected(endpoint) as asking, asking.makefile() as answer:
            return Counters(*parse_json(answer.read(_MOST_CHARACTERS)))  # pyrefly: ignore
    except (OSError, ValueError, TypeError, Unreadable):
        return None


@contextlib.contextmanager
def _connected(endpoint: str) -> Iterator[socket.socket]:
    """Connects to an endpoint; sends the word if it is a port."""
    is_port = endpoint.startswith(_PORT)
    host, port, word = endpoint.removeprefix(_PORT).split(":") if is_port else ("", "0", "")
    with socket.socket(socket.AF_INET if is_port else socket.AF_UNIX) as asking:
        asking.settimeout(ANSWER_SECONDS)
        asking.connect((host, int(port)) if is_port else _address(endpoint))
        if is_port and asking.recv(1) == _WORD:
            asking.sendall(word.encode())
        yield asking


def _new_name() -> str:
    """Makes a new name. If each process has its own network it is a path, since other names are known in one network only."""
    name = f"samestep-{secrets.token_hex(16)}"
    linked = DEVICE in (device for _, device in socket.if_nameindex())
    return str(Path(tempfile.gettempdir(), name)) if linked else name


def _address(endpoint: str) -> str:
    """Makes an address: a path, or a name in Linux's abstract namespace, which starts with a zero byte and has no file."""
    return endpoint if os.path.isabs(endpoint) else f"\0{endpoint}"


def _uid_of(asking: socket.socket) -> int:
    """Asks the kernel for the user at the other end (`struct ucred`: pid, uid, gid)."""
    _, uid, _ = struct.unpack("iII", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid

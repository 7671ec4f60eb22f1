"""The usage endpoint of a process that only serves: it shows that it is alive, and answers rank 0 what it has sent.

It answers on a Unix socket without a file, named after the run and its own role, so no answer counts as traffic. The
socket does not reach other machines; what a process there sends is unknown.
"""

import hashlib
import json
import resource
import socket
from pathlib import Path
from typing import NamedTuple, NoReturn

from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.worker.wire import tcp_bytes

ANSWER_SECONDS = 1.0
"""A suspended process (SIGSTOP) never answers."""


class Counters(NamedTuple):
    """What a process has used since it started.

    Attributes:
        sent_bytes: Over TCP.
        received_bytes: Over TCP.
        peak_rss_bytes: The most memory it has had.
    """

    sent_bytes: int
    received_bytes: int
    peak_rss_bytes: int


def serve(file: ProcessFile, beat_seconds: float) -> NoReturn:
    """Answers until the process is ended from outside; the framework serves on threads of its own.

    Args:
        file: The present process's.
        beat_seconds: How often it shows that it is alive.
    """
    file.enter("serve")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(_address(file.directory, file.role))
        listening.listen()
        listening.settimeout(beat_seconds)
        while True:
            file.beat(0)
            try:
                asking, _ = listening.accept()
                with asking:
                    asking.sendall(json.dumps(count()).encode())
            except OSError:
                continue  # nobody asked, or nobody waited for the answer


def count() -> Counters:
    """Reads the counters of the present process."""
    sent, received = tcp_bytes()
    return Counters(sent, received, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def ask(directory: Path, role: str) -> Counters | None:
    """Asks a process that serves for its counters; None if it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(ANSWER_SECONDS)
            asking.connect(_address(directory, role))
            with asking.makefile() as answer:
                return Counters(*json.load(answer))
    except (OSError, ValueError, TypeError):
        return None


def _address(directory: Path, role: str) -> str:
    """In Linux's abstract namespace, which a leading zero byte selects: nothing is left in the run directory."""
    return "\0samestep-" + hashlib.sha256(f"{directory.resolve()} {role}".encode()).hexdigest()

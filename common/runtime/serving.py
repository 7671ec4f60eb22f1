"""What a process does that only serves: it shows that it is alive, and says what it has sent whenever rank 0 asks.

It answers on a Unix socket without a file, named for the run and its own role, so that no answer counts as traffic. On
another machine nobody hears the question; what such a process sends is then unknown.
"""

import hashlib
import json
import resource
import socket
from pathlib import Path
from typing import NoReturn

from common.runtime.records import ProcessRecord
from common.runtime.wire import tcp_bytes

ANSWER_SECONDS = 1.0
"""A process that is stopped answers never."""


def serve(record: ProcessRecord, beat_seconds: float) -> NoReturn:
    """Answers until the process is ended from outside; the framework serves on threads of its own.

    Args:
        record: The present process's.
        beat_seconds: How often it shows that it is alive.
    """
    record.enter("serve")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(_address(record.run, record.role))
        listening.listen()
        listening.settimeout(beat_seconds)
        while True:
            record.beat(0)
            try:
                asking, _ = listening.accept()
                with asking:
                    asking.sendall(json.dumps(usage()).encode())
            except OSError:
                continue  # nobody asked, or nobody waited for the answer


def usage() -> dict[str, int]:
    """What the present process has sent and received over TCP so far, and the most memory it has had."""
    sent, received = tcp_bytes()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"sent_bytes": sent, "received_bytes": received, "peak_rss_bytes": peak}


def ask(run: Path, role: str) -> dict[str, int] | None:
    """The usage of a process that serves; None if it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(ANSWER_SECONDS)
            asking.connect(_address(run, role))
            with asking.makefile() as answer:
                return json.load(answer)
    except (OSError, ValueError):
        return None


def _address(run: Path, role: str) -> str:
    """In Linux's abstract namespace, which a leading zero byte selects: nothing is left in the run directory."""
    return "\0samestep-" + hashlib.sha256(f"{run.resolve()} {role}".encode()).hexdigest()

"""What a launcher and its fork servers say to each other: one JSON object a line, in both directions.

launcher: {"start": 1, "directory": DIR, "log": FILE, "environment": {...}}   server: {"started": 1, "pid": 4711}
launcher: {"signal": 1, "number": 15}
server: {"ended": 1, "code": 0}   (-9: by signal 9)
"""

from typing import TypedDict


class Command(TypedDict, total=False):
    """What a server is told: to start worker `start`, or to send signal `number` to worker `signal`."""

    start: int
    directory: str
    log: str
    environment: dict[str, str]
    signal: int
    number: int


class Answer(TypedDict, total=False):
    """What a server reports: that it is ready, that a worker was started, or how one ended."""

    ready: int
    started: int
    pid: int
    ended: int
    code: int

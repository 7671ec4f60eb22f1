"""What a launcher and its fork servers say to each other: one JSON object a line, in both directions.

launcher: {"network": true}   server: {"network": ""}   (or why there is none)
launcher: {"start": 1, "directory": DIR, "log": FILE, "environment": {...}, "private": true}
server: {"started": 1, "pid": 4711}
launcher: {"signal": 1, "number": 15}
server: {"ended": 1, "code": 0}   (-9: by signal 9)
"""

from typing import TypedDict


class Command(TypedDict, total=False):
    """What a server is told.

    To make a private network, in place of the last one; to start worker `start`, `private` in that network; or to send
    signal `number` to worker `signal`.
    """

    network: bool

    start: int
    directory: str
    log: str
    environment: dict[str, str]
    private: bool
    signal: int
    number: int


class Answer(TypedDict, total=False):
    """What a server reports: that it is ready, whether a network was made, that a worker was started, or how one ended."""

    ready: int
    network: str
    started: int
    pid: int
    ended: int
    code: int

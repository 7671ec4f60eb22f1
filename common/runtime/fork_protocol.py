"""The messages between a launcher and its fork servers: one JSON object a line, in both directions.

launcher: {"network": 0, "bits_per_second": 0}   server: {"network": ""}   (or why there is none)
launcher: {"preload": ["keras"], "environment": {}}   server: {"preloaded": 1}
launcher: {"start": 1, "directory": DIR, "log": FILE, "environment": {...}, "place": 0}
server: {"started": 1, "pid": 4711}
launcher: {"signal": 1, "number": 15}
server: {"ended": 1, "code": 0}   (-9: by signal 9)

Above the server is its keeper, see `worker/keeper.py`. It writes into the same pipe, first of all:
keeper: {"pids": {"server": 4709, "maker": 4708}}
keeper: {"died": "server", "code": -9}   last of all, if one of them died unexpectedly
"""

from typing import TypedDict


class Command(TypedDict, total=False):
    """A command to a server.

    It makes a private network that replaces the last one, with a link for each of `network` workers unless that is 0; or imports
    modules, which later workers then share; or starts worker `start` at a place in that network or outside of it; or sends
    signal `number` to worker `signal`.
    """

    network: int
    bits_per_second: int

    preload: list[str]

    start: int
    directory: str
    log: str
    environment: dict[str, str]
    place: int | None
    signal: int
    number: int


class Reply(TypedDict, total=False):
    """A report of a server: that it is ready, what it has imported or made, that a worker was started, or how one ended.

    Or a report of its keeper: which processes there are besides it, and which of them died.
    """

    pids: dict[str, int]
    died: str

    ready: int
    network: str
    preloaded: int
    started: int
    pid: int
    ended: int
    code: int

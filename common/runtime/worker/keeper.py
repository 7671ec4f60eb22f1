"""The keeper of a fork server: a small process above it, which ends everything that the server and its workers have started.

It only waits, so it answers at once, even while the server imports its framework for seconds or after the server was killed. It
ends everything when the launcher closes its pipe or dies, or when a process of the server does. Its exit code is 0 if nothing
is left, i.e. if the kernel says that it has no children left. That counts all descendants, since it adopts orphans.
"""

import contextlib
import json
import os
import select
import signal
from collections.abc import Callable
from typing import NoReturn

from samestep.common.runtime.fork_protocol import Reply
from samestep.common.runtime.worker.child_processes import adopt_orphans, end_children, end_with_parent, reap
from samestep.common.runtime.worker.private_network import NetworkMaker

_COMMANDS, _ANSWERS = 0, 1
"""The descriptors of the launcher's pipes; the server reads and writes them, the keeper only sees whether the first is closed."""
_PARENT_ENDED = signal.SIGUSR1


def keep(launcher: int, serve: Callable[[NetworkMaker], NoReturn]) -> NoReturn:
    """Forks a network maker and a server, waits until one of them or the launcher ends, and then ends everything.

    Args:
        launcher: The id of the process that started this one.
        serve: The function that the server runs.
    """
    adopt_orphans()
    maker = NetworkMaker()
    keeper = os.getpid()
    if (server := os.fork()) == 0:
        end_with_parent(keeper, signal.SIGKILL)
        serve(maker)
    wakeup = wake_on(signal.SIGCHLD, signal.SIGTERM, _PARENT_ENDED)
    end_with_parent(launcher, _PARENT_ENDED)
    _say({"pids": {"server": server, "maker": maker.pid}})
    said = _wait(launcher, {server: "server", maker.pid: "maker"}, wakeup)
    for pid in (server, maker.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    is_alone = end_children()
    if said is not None:
        _say(said)
    os._exit(0 if is_alone else 1)


def wake_on(*numbers: signal.Signals) -> int:
    """Makes signals write their numbers to a pipe; returns the descriptor from which they can be read."""
    wakeup, write = os.pipe()
    for end in (wakeup, write):
        os.set_blocking(end, False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return wakeup


def _wait(launcher: int, members: dict[int, str], wakeup: int) -> Reply | None:
    """Waits until everything has to end; returns the member that died, if that is the reason."""
    poller = select.poll()
    poller.register(_COMMANDS, 0)  # reports only that the launcher's pipe was closed; commands are the server's
    poller.register(wakeup, select.POLLIN)
    while True:
        for pid, code in reap():
            if pid in members:
                return {"died": members[pid], "code": code}
        if os.getppid() != launcher:
            return None
        for descriptor, _ in poller.poll():
            if descriptor == _COMMANDS:
                return None
            if signal.SIGTERM in os.read(wakeup, 4096):
                return {"died": "keeper", "code": -signal.SIGTERM}


def _say(answer: Reply) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(_ANSWERS, json.dumps(answer).encode() + b"\n")

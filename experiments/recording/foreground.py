"""Runs the command that the user gave in the foreground: it has the terminal, and gets every signal."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.runtime.parent.processes.started import hold_signals

_PASSED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""The signals that people, schedulers and other programs send to a script, each of which would end this process."""
_LOOK_SECONDS = 1.0
_ARRIVE_SECONDS = 0.1
"""The seconds in which a signal reaches a group if its sender first sends it to this process alone, as `timeout` does."""


def run_in_foreground(command: Sequence[str], environment: Mapping[str, str], directory: Path | None) -> int:
    """Runs a command to its end; returns its exit code, -N where signal N ended it.

    Args:
        command: Its words.
        environment: Its environment.
        directory: Where it is started; here, unless given.
    """
    waited = {*_PASSED, signal.SIGCHLD}
    with hold_signals():
        # What a shell passes on, as in `python <(generate)`, stays open.
        process = subprocess.Popen(command, env=environment, cwd=directory, close_fds=False)
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited; then nobody is told of an exit code
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
        neighbour = _Neighbour()
    try:
        while process.poll() is None:
            came = signal.sigtimedwait(waited, _LOOK_SECONDS)
            if came is not None and came.si_signo in _PASSED and not _has_come(came, process.pid, neighbour):
                process.send_signal(came.si_signo)
    finally:
        neighbour.end()
        while signal.sigtimedwait(_PASSED, 0):  # what has come since the command ended would end this process
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process.returncode


class _Neighbour:
    """A process of this group that lets all signals wait: what waits there was sent to the whole group.

    It is another program, so that what is sent to all programs of this one's name does not reach it.
    """

    def __init__(self) -> None:
        """Starts it, where this process lets them wait. It ends with this process; without it, nothing is known of groups."""
        self._process: subprocess.Popen[bytes] | None = None
        self._got = set[int]()
        self._start()

    def _start(self) -> None:
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def has_got(self, number: int) -> bool:
        """Returns whether a signal that has come here was sent to the group; it is not told of the same one again."""
        waiting = 0
        time.sleep(_ARRIVE_SECONDS)
        with contextlib.suppress(OSError), open(f"/proc/{self._process and self._process.pid}/status") as status:
            waiting = next((int(line.split()[1], 16) for line in status if line.startswith("ShdPnd:")), 0)
        if came := {each for each in _PASSED if waiting & 1 << each - 1}:
            self._got |= came  # others of these are still to come here
            self.end()
            self._start()
        if number not in self._got:
            return False
        self._got.remove(number)
        signal.sigtimedwait([number], 0)  # it came twice
        return True

    def end(self) -> None:
        """Ends it, also where it is stopped."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _has_come(came: signal.struct_siginfo, command: int, neighbour: _Neighbour) -> bool:
    """Returns whether the command, of this number, has got the signal as well.

    What it sends to this process is meant for its whole group, and so is what others send that reaches the group. What the kernel
    sends of itself, as a terminal's Ctrl-C, reaches all processes of the terminal, apart from a hangup: of that, the first
    process of the session alone is told.
    """
    has_group = neighbour.has_got(came.si_signo)  # asked of each, so that none waits there any longer
    if came.si_code <= 0:
        return came.si_pid == command or (has_group and _is_of_group(command))
    return came.si_signo != signal.SIGHUP or os.getsid(0) != os.getpid()


def _is_of_group(command: int) -> bool:
    """Returns whether the command has stayed in the group of this process."""
    try:
        return os.getpgid(command) == os.getpgrp()
    except ProcessLookupError:
        return False

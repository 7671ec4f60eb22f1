"""Runs the user's command in the foreground: it has the terminal, and gets every signal."""

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
    """Runs a command to its end; returns its exit code, or -N if signal N ended it.

    Args:
        command: The words of the command.
        environment: Its environment.
        directory: Its working directory; by default the current one.
    """
    waited = {*_PASSED, signal.SIGCHLD}
    with hold_signals():
        # Files that a shell passes, as in `python <(generate)`, stay open.
        process = subprocess.Popen(command, env=environment, cwd=directory, close_fds=False)
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited; it would discard the exit code
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
        while signal.sigtimedwait(_PASSED, 0):  # a signal that came after the command ended would end this process
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process.returncode


class _Neighbour:
    """A process of this group in which all signals stay pending, which shows that a signal was sent to the whole group.

    It is another program, so signals to all programs with this one's name do not reach it.
    """

    def __init__(self) -> None:
        """Starts it while this process blocks signals. It ends with this process; without it, groups are not recognized."""
        self._process: subprocess.Popen[bytes] | None = None
        self._got = set[int]()
        self._start()

    def _start(self) -> None:
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def has_got(self, number: int) -> bool:
        """Returns whether a signal that has come here was sent to the group; the same signal is not counted twice."""
        waiting = 0
        time.sleep(_ARRIVE_SECONDS)
        with contextlib.suppress(OSError), open(f"/proc/{self._process and self._process.pid}/status") as status:
            waiting = next((int(line.split()[1], 16) for line in status if line.startswith("ShdPnd:")), 0)
        if came := {each for each in _PASSED if waiting & 1 << each - 1}:
            self._got |= came  # others of them have yet to come here
            self.end()
            self._start()
        if number not in self._got:
            return False
        self._got.remove(number)
        signal.sigtimedwait([number], 0)  # it came twice
        return True

    def end(self) -> None:
        """Ends it, even if it is stopped."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _has_come(came: signal.struct_siginfo, command: int, neighbour: _Neighbour) -> bool:
    """Returns whether the command with this process id has got the signal as well.

    A signal that the command sends to this process is meant for its whole group, and so is a signal of others that reaches the
    group. A signal of the kernel, such as a terminal's Ctrl-C, reaches all processes of the terminal, except for a hangup, which
    reaches only the first process of the session.
    """
    has_group = neighbour.has_got(came.si_signo)  # called for each signal, so none stays pending there
    if came.si_code <= 0:
        return came.si_pid == command or (has_group and _is_of_group(command))
    return came.si_signo != signal.SIGHUP or os.getsid(0) != os.getpid()


def _is_of_group(command: int) -> bool:
    """Returns whether the command has stayed in the group of this process."""
    try:
        return os.getpgid(command) == os.getpgrp()
    except ProcessLookupError:
        return False

"""Runs the command that the user gave, in the place of this process: it has the terminal, and every signal."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.runtime.parent.processes.started import hold_signals

_PASSED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What people, schedulers and other programs send to a script: this process would end by each."""
_LOOK_SECONDS = 1.0


def run_followed(command: Sequence[str], environment: Mapping[str, str], directory: Path | None) -> int:
    """Runs a command to its end; returns its exit code, -N where signal N ended it.

    Args:
        command: Its words.
        environment: Its environment.
        directory: Where it is started; here, unless given.
    """
    waited = {*_PASSED, signal.SIGCHLD}
    with hold_signals():
        process = subprocess.Popen(command, env=environment, cwd=directory)
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # inherited; then nobody is told of an exit code
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        while process.poll() is None:
            came = signal.sigtimedwait(waited, _LOOK_SECONDS)
            if came is not None and came.si_signo in _PASSED and not _has_come(came, process.pid):
                process.send_signal(came.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process.returncode


def _has_come(came: signal.struct_siginfo, command: int) -> bool:
    """Returns whether the command, of this number, has got the signal as well.

    What it sends to this process is meant for its whole group. What the kernel sends of itself, as a terminal's Ctrl-C, reaches
    all processes of the terminal, apart from a hangup: of that, the first process of the session alone is told.
    """
    if came.si_code <= 0:
        return came.si_pid == command
    return came.si_signo != signal.SIGHUP or os.getsid(0) != os.getpid()

"""Runs a command that the user did not start. It has no terminal, and it ends with this process, as does all it started."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.runtime.parent.processes.started import STARTED, hold_signals
from samestep.common.runtime.processes import Process, descendants, kill_all, look, read_environment
from samestep.common.steps.recording import VARIABLE

_END_SECONDS, _PAUSE_SECONDS = 5.0, 0.02


class BackgroundCommand:
    """A running command. Ctrl-C reaches this process alone, which then ends the command."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], output: int, directory: Path | None
    ) -> None:
        """Starts the command.

        Args:
            command: The words of the command.
            environment: Its environment, by which the processes that it started are recognized.
            output: The descriptor of the file for its output and errors.
            directory: Its working directory; by default the current one.
        """
        self._mark = f"{VARIABLE}={environment[VARIABLE]}".encode()
        with hold_signals():
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=directory, process_group=0
            )  # fmt: skip
            STARTED.append(self)

    def wait(self) -> int:
        """Waits until the command has ended; returns its exit code."""
        try:
            return self._process.wait()
        finally:
            self.close()

    def close(self) -> Sequence[Process]:
        """Ends the command if it runs, and all it started; returns the processes that could not be ended."""
        with hold_signals():
            if self in STARTED:
                STARTED.remove(self)
            return self._end()

    def _end(self) -> list[Process]:
        """Asks the command to end, as torchrun then ends its workers; processes that still run after a while are killed.

        If it has ended, the processes that it left get the same time: a forked rank may still write its last step.
        """
        is_over = self._process.poll() is not None
        seen = [*(() if is_over else descendants([self._process.pid])), *self._left()]
        if is_over and not seen:
            return []
        if not is_over:
            os.killpg(self._process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while (any(each.is_alive for each in seen) if is_over else self._process.poll() is None) and (
            time.monotonic() < deadline
        ):
            time.sleep(_PAUSE_SECONDS)
        return kill_all(lambda: self._alive(seen))

    def _alive(self, seen: Sequence[Process]) -> list[Process]:
        """Returns those of the processes that still run, and those that were started since."""
        self._process.poll()
        return [*{each.pid: each for each in (*seen, *self._left()) if each.is_alive}.values()]

    def _left(self) -> list[Process]:
        """Returns the processes with the environment of the command, whatever their parent is by now."""
        others = (int(path.name) for path in Path("/proc").glob("[0-9]*") if path.name != str(self._process.pid))
        found = [look(pid) for pid in others if self._mark in read_environment(pid)]
        return [each for each in found if each is not None]

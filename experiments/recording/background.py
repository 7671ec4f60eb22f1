"""Runs a command that the user did not start: it has no terminal, and it and what it started end with this process."""

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
        """Starts it.

        Args:
            command: Its words.
            environment: Its environment, by whose options it is known what it started.
            output: Where its output and errors go.
            directory: Where it is started; here, unless given.
        """
        self._mark = f"{VARIABLE}={environment[VARIABLE]}".encode()
        with hold_signals():
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=directory, process_group=0
            )  # fmt: skip
            STARTED.append(self)

    def wait(self) -> int:
        """Waits for its end; returns its exit code."""
        try:
            return self._process.wait()
        finally:
            self.close()

    def close(self) -> Sequence[Process]:
        """Ends it if it runs, and what it started; returns what could not be ended."""
        with hold_signals():
            if self in STARTED:
                STARTED.remove(self)
            return self._end()

    def _end(self) -> list[Process]:
        """Asks it to end, as torchrun then ends its workers; what is still there after a while is killed.

        If it has ended, what it left is given that while as well: a forked rank may still write its last step.
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
        """Returns what is still there of these processes, and what was started since."""
        self._process.poll()
        return [*{each.pid: each for each in (*seen, *self._left()) if each.is_alive}.values()]

    def _left(self) -> list[Process]:
        """Returns the processes that have its environment, wherever they hang by now."""
        others = (int(path.name) for path in Path("/proc").glob("[0-9]*") if path.name != str(self._process.pid))
        found = [look(pid) for pid in others if self._mark in read_environment(pid)]
        return [each for each in found if each is not None]

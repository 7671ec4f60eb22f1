"""The parent's side of a fork server."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from samestep.common.catalog import framework_info, require
from samestep.common.errors import WorkerFailed
from samestep.common.runtime.fork_protocol import Answer, Command

START_SECONDS = 120.0


class ForkClient:
    """One framework, imported once, ready to fork workers."""

    def __init__(self, framework: str, threads: int, worker: str) -> None:
        """Starts the server and returns at once.

        Args:
            framework: A key of FRAMEWORKS.
            threads: For the libraries that read it when they are imported.
            worker: The module whose `main` each worker runs.

        Raises:
            Unavailable: The framework is not installed.
        """
        require(framework)
        self._framework = framework
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "samestep.common.runtime.worker.fork_server", framework, worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | _thread_environment(threads) | dict(framework_info(framework).environment),
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then stops everything in order
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._commands, self._answers = self._process.stdin, self._process.stdout
        os.set_blocking(self._answers.fileno(), False)
        self._pending = b""
        self._count = 0
        self._ready = False
        self.pids: dict[int, int] = {}

    @property
    def alive(self) -> bool:
        """Whether the server still runs; one that was killed is of no further use."""
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Waits until the framework is imported.

        Raises:
            WorkerFailed: The import failed, or took too long.
        """
        deadline = time.monotonic() + START_SECONDS
        while not self._ready:
            if time.monotonic() > deadline:
                raise WorkerFailed(
                    f"importing {self._framework} took more than {START_SECONDS:.0f} s{self._last_words()}"
                )
            for answer in self.poll(0.5):
                self._ready |= "ready" in answer

    def start_worker(self, directory: Path, log: Path, environment: Mapping[str, str]) -> int:
        """Forks a worker.

        Returns:
            Its number, by which `poll` reports its end.
        """
        self.wait_ready()
        self._count += 1
        self._send(
            {"start": self._count, "directory": str(directory), "log": str(log), "environment": dict(environment)}
        )
        return self._count

    def signal_worker(self, number: int, signal_number: int) -> None:
        """Sends a signal to a worker that has not ended."""
        self._send({"signal": number, "number": int(signal_number)})

    def poll(self, seconds: float) -> list[Answer]:
        """The server's answers, at most so long awaited.

        Raises:
            WorkerFailed: The server itself is gone.
        """
        select.select([self._answers], [], [], seconds)
        chunk = self._answers.read()
        if chunk == b"":
            self._process.wait()
            raise WorkerFailed(f"the {self._framework} server ended unasked{self._last_words()}")
        *lines, self._pending = (self._pending + (chunk or b"")).split(b"\n")
        answers: list[Answer] = [json.loads(line) for line in lines]
        for answer in answers:
            if "started" in answer:
                self.pids[answer["started"]] = answer["pid"]
        return answers

    def close(self) -> None:
        """Ends the server and whatever it started."""
        self._commands.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._log.close()

    def _send(self, command: Command) -> None:
        try:
            self._commands.write(json.dumps(command).encode() + b"\n")
            self._commands.flush()
        except BrokenPipeError:
            raise WorkerFailed(f"the {self._framework} server ended unasked{self._last_words()}") from None

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


def _thread_environment(threads: int) -> dict[str, str]:
    return {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}

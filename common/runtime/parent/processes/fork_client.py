"""The parent's side of a fork server."""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.catalog import framework_info, require
from samestep.common.errors import WorkerFailed
from samestep.common.files.writing import create
from samestep.common.request import RunConfig
from samestep.common.runtime.parent.processes.crash_report import ending, last_lines
from samestep.common.runtime.parent.processes.memory_kills import MemoryKills
from samestep.common.runtime.parent.processes.server_processes import ServerProcesses
from samestep.common.runtime.parent.processes.started import STARTED, hold_signals
from samestep.common.runtime.processes import Process, is_stopped, module_line

if TYPE_CHECKING:
    from samestep.common.runtime.fork_protocol import Command, Reply

START_SECONDS = 120.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ForkClient:
    """A fork server, as its parent uses it."""

    def __init__(self, framework: str, threads: int, worker: str, scratch: str) -> None:
        """Starts the server and returns at once.

        Args:
            framework: A key of FRAMEWORKS.
            threads: The number of threads, for libraries that read it when they are imported.
            worker: The module whose `main` each worker runs.
            scratch: The folder for temporary files of the framework; workers end without removing theirs.

        Raises:
            Unavailable: The framework is not installed.
        """
        require(framework)
        self._framework = framework
        self._pending, self._count = b"", 0
        self._ready, self._closed, self._preloaded = False, False, set[str]()
        self._memory_kills = MemoryKills()
        self._died: Reply = {}
        self._left: Sequence[Process] = ()
        self.timeout_seconds = RunConfig.timeout_seconds
        self.pids: dict[int, int] = {}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        module = "samestep.common.runtime.worker.fork_server"
        environment = (
            dict.fromkeys(_THREADS, str(threads)) | dict(framework_info(framework).environment) | {"TMPDIR": scratch}
        )
        with hold_signals():  # no signal comes between the start and the entry in STARTED
            self._process = subprocess.Popen(
                module_line(module, framework, worker, str(os.getpid())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=os.environ | environment,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which then stops everything in order
            )
            self._processes = ServerProcesses(framework, self._process)
            assert self._process.stdin is not None and self._process.stdout is not None
            self._commands, self._answers = self._process.stdin, self._process.stdout
            STARTED.append(self)
        os.set_blocking(self._answers.fileno(), False)

    @property
    def alive(self) -> bool:
        """Returns whether the server still runs. A server that was killed cannot be used again."""
        return not self._closed and self._process.poll() is None

    @property
    def obeys(self) -> bool:
        """Returns whether the server accepts commands, i.e. it is running and none of its processes is stopped."""
        return self.alive and not self._processes.stopped()

    def wait_ready(self) -> None:
        """Waits until the framework is imported.

        Raises:
            WorkerFailed: The import failed, or took too long.
        """
        if not self._ready:
            self._wait_for("ready", f"importing {self._framework}")
            self._ready = True

    def preload(self, modules: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Imports modules for all later workers. If an import fails, the worker that needs the module reports it.

        Args:
            modules: Their names, in order.
            environment: The environment variables to set during the imports.
        """
        if missing := [name for name in modules if name not in self._preloaded]:
            self.wait_ready()
            self._send({"preload": missing, "environment": dict(environment or {})})
            self._wait_for("preloaded", f"importing {missing[0]}")
            self._preloaded.update(missing)

    def make_network(self, linked: int = 0, bits_per_second: int = 0) -> str:
        """Makes a private network for the workers of a run; it replaces the last one.

        Args:
            linked: How many workers get their own network with a link to the others; with 0, all share one.
            bits_per_second: What each link carries in either direction.

        Returns:
            Why this machine allows none; "" if the network was made. Then only the workers can connect to each other.
        """
        self.wait_ready()
        self._send({"network": linked, "bits_per_second": bits_per_second})
        return self._wait_for("network", "making a private network")["network"]

    def start_worker(self, directory: Path, log: Path, environment: Mapping[str, str], place: int | None) -> int:
        """Forks a worker.

        Args:
            directory: The run directory.
            log: The file that takes its output.
            environment: The variables to add to the server's environment.
            place: Its place in the private network that was last made; None to stay outside of it.

        Returns:
            Its number, by which `poll` reports its end.

        Raises:
            WorkerFailed: Its log cannot be written.
        """
        self.wait_ready()
        try:
            os.close(create(log))
        except OSError as error:
            raise WorkerFailed(f"{log} cannot be written: {error.strerror}") from None
        self._count += 1
        folder, own = str(directory.absolute()), str(log.absolute())  # the server may be in another folder
        given = dict(environment)
        self._send({"start": self._count, "directory": folder, "log": own, "environment": given, "place": place})
        return self._count

    def signal_worker(self, number: int, signal_number: int) -> None:
        """Sends a signal to a worker that has not ended.

        Args:
            number: The worker's number, as `start_worker` returned it.
            signal_number: The signal to send.
        """
        self._send({"signal": number, "number": int(signal_number)})

    def poll(self, seconds: float) -> "list[Reply]":
        """Waits for the server's answers, at most for the given seconds, and returns them.

        Raises:
            WorkerFailed: The server itself is gone, or was stopped for `timeout_seconds` and has been ended.
        """
        if self._closed:
            raise WorkerFailed(f"{self._processes.name('server')} has been ended")
        try:
            self._processes.check(self.timeout_seconds)
        except WorkerFailed:
            self.close()
            raise
        select.select([self._answers], [], [], seconds)
        chunk = self._answers.read()
        if chunk == b"":
            raise self._death()
        return self._take(chunk or b"")

    def _take(self, chunk: bytes) -> "list[Reply]":
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        answers: list[Reply] = [json.loads(line) for line in lines]
        for answer in answers:
            if "started" in answer:
                self.pids[answer["started"]] = answer["pid"]
            if "died" in answer:
                self._died = answer
            self._processes.learn(answer.get("pids", {}))
        return answers

    def is_stopped(self, number: int) -> bool:
        """Returns whether a worker is stopped, for example by SIGSTOP or a debugger."""
        return number in self.pids and is_stopped(self.pids[number])

    def ending(self, number: int, code: int) -> str:
        """Describes how a worker ended.

        Args:
            number: The worker's number.
            code: The exit code that the server reported.
        """
        return self._ending(self.pids.get(number, 0), code)

    def _ending(self, pid: int, code: int) -> str:
        reason = self._memory_kills.explain(pid) if code == -signal.SIGKILL else ""
        return f"was killed {reason}" if reason else ending(code)

    def close(self) -> Sequence[Process]:
        """Ends the server and everything that it started, unless already done; returns the processes that could not be ended."""
        with hold_signals():
            if not self._closed:
                self._closed = True
                with contextlib.suppress(BrokenPipeError):  # the server was killed with a command still unread
                    self._commands.close()
                self._left = self._processes.end()
                self._answers.close()
                self._log.close()
                if not self._left:
                    STARTED.remove(self)
        return self._left

    def _wait_for(self, kind: str, what: str) -> "Reply":
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for answer in self.poll(0.5):
                if kind in answer:
                    return answer
        raise WorkerFailed(f"{what} took more than {START_SECONDS:.0f} s{self._last_words()}")

    def _send(self, command: "Command") -> None:
        try:
            self._commands.write(json.dumps(command).encode() + b"\n")
            self._commands.flush()
        except BrokenPipeError:
            raise self._death() from None

    def _death(self) -> WorkerFailed:
        """Returns the error for a server that ended unexpectedly; its workers die with it."""
        self._process.wait()
        self._take(self._answers.read() or b"")
        member, code = self._died.get("died", "keeper"), self._died.get("code", self._process.returncode)
        words = self._last_words() or ", and the processes that it had started ended with it"
        return WorkerFailed(f"{self._processes.name(member)} {self._ending(self._processes.pid(member), code)}{words}")

    def _last_words(self) -> str:
        self._log.seek(0)
        line = last_lines(self._log.read().decode(errors="replace"), 1).strip()
        return f": {line}" if line else ""

"""A fork server: one process per framework that has imported it, and forks a worker in milliseconds.

`python -m samestep.common.runtime.worker.fork_server FRAMEWORK [WORKER_MODULE]` reads commands and answers them, see
`fork_protocol.py`.

Nothing but imports happens before a fork: no tensor, no context, one thread. When its input closes, the server kills
what it started and ends; a worker whose server dies is killed by the kernel.
"""

import contextlib
import ctypes
import importlib
import json
import os
import selectors
import signal
import sys
import traceback
from pathlib import Path

from samestep.common.runtime.fork_protocol import Answer, Command
from samestep.common.runtime.imports import import_framework, import_modules
from samestep.common.runtime.worker.private_network import Network, NetworkMaker, enter_network
from samestep.common.writing import reopen

_PR_SET_PDEATHSIG = 1


class ForkServer:
    """Forks workers on command, and reports how they end."""

    def __init__(self, worker: str) -> None:
        self._maker = NetworkMaker()
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # whatever a library prints goes to the log
        self._worker = importlib.import_module(worker)
        self._pids: dict[int, int] = {}
        self._network = Network([])
        self._libc = ctypes.CDLL(None)
        self._wakeup, write = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Runs until the input closes."""
        self._answer({"ready": os.getpid()})
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ)
        selector.register(self._wakeup, selectors.EVENT_READ)
        pending = b""
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if self._wakeup in ready:
                os.read(self._wakeup, 4096)
                self._reap()
            if 0 in ready:
                chunk = os.read(0, 65536)
                if not chunk:
                    break
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)

    def _obey(self, command: Command) -> None:
        if "start" in command:
            pid = os.fork()
            if pid == 0:
                self._become_worker(command)
            self._pids[command["start"]] = pid
            self._answer({"started": command["start"], "pid": pid})
        elif "network" in command:
            self._answer({"network": self._renew_network(command["network"], command["bits_per_second"])})
        elif "preload" in command:
            with contextlib.suppress(ImportError):  # whoever needs it will say so
                import_modules(command["preload"])
            self._answer({"preloaded": len(command["preload"])})
        elif command["signal"] in self._pids:  # not yet reaped, so that the pid is still its own
            os.kill(self._pids[command["signal"]], command["number"])

    def _renew_network(self, linked: int, bits_per_second: int) -> str:
        """Makes a private network in the place of the last run's; returns why there is none, or ""."""
        self._network.close()
        self._network = Network([])
        try:
            self._network = self._maker.make(linked, bits_per_second)
        except OSError as error:
            return str(error)
        return ""

    def _reap(self) -> None:
        for number, pid in list(self._pids.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._pids[number]
                self._answer({"ended": number, "code": os.waitstatus_to_exitcode(status)})

    def _become_worker(self, command: Command) -> None:
        code = 1
        try:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self._answers.close()
            log = reopen(Path(command["log"]))  # which the launcher made
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            if command["place"] is not None:
                enter_network(self._network.entry(command["place"]))
            os.environ.update(command["environment"])
            code = self._worker.main([command["directory"]])
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError):  # a log on a disk that is full
                    stream.flush()
            os._exit(code)

    def _answer(self, values: Answer) -> None:
        self._answers.write(json.dumps(values) + "\n")


def main(framework: str, worker: str = "samestep.common.runtime.worker.worker") -> None:
    """Imports the framework and serves.

    Args:
        framework: The framework to import.
        worker: The module whose `main` is each worker's.
    """
    server = ForkServer(worker)
    import_framework(framework)
    server.serve()


if __name__ == "__main__":
    main(*sys.argv[1:])

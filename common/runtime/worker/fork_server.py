"""A fork server: one process for each framework, which has imported it and forks workers in milliseconds.

`python -m samestep.common.runtime.worker.fork_server FRAMEWORK WORKER_MODULE LAUNCHER_PID` becomes the server's keeper. The
server reads commands and answers them, see `fork_protocol.py`.

Before a fork there are only imports: no tensors, no contexts, one thread. Processes that workers have started are ended with
the last worker. When its input closes, or its keeper dies, the server ends what it started and then itself. The kernel kills a
worker whose server dies.
"""

import contextlib
import importlib
import json
import os
import selectors
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from samestep.common.files.writing import reopen
from samestep.common.runtime.fork_protocol import Command, Reply
from samestep.common.runtime.imports import Imports, import_framework, preload
from samestep.common.runtime.processes import look
from samestep.common.runtime.topology import LAUNCHER
from samestep.common.runtime.worker.child_processes import adopt_orphans, end_children, end_with_parent, reap
from samestep.common.runtime.worker.keeper import keep, wake_on
from samestep.common.runtime.worker.private_network import Network, NetworkMaker, enter_network


class ForkServer:
    """Forks workers on command, and reports how they end."""

    def __init__(self, worker: str, maker: NetworkMaker) -> None:
        self._maker, self._keeper = maker, os.getppid()
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # what a library prints goes to the log
        self._worker = importlib.import_module(worker)
        self._pids: dict[int, int] = {}
        self._network = Network([])
        adopt_orphans()

    def serve(self) -> None:
        """Runs until the input closes, or until SIGTERM, which the kernel also sends when the keeper ends."""
        wakeup = wake_on(signal.SIGCHLD, signal.SIGTERM)
        end_with_parent(self._keeper, signal.SIGTERM)
        self._answer({"ready": os.getpid()})
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ)
        selector.register(wakeup, selectors.EVENT_READ)
        pending = b""
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if wakeup in ready:
                if signal.SIGTERM in os.read(wakeup, 4096):
                    break
                self._reap()
            if 0 in ready:
                chunk = os.read(0, 65536)
                if not chunk:
                    break
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))

    def end(self) -> NoReturn:
        """Ends the workers, what they started, and this process."""
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
        end_children()
        if os.getppid() == self._keeper:
            os.kill(self._keeper, signal.SIGCONT)  # it ends the rest, even if it was stopped
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
        os._exit(1)

    def _obey(self, command: Command) -> None:
        if "start" in command:
            server = os.getpid()
            pid = os.fork()
            if pid == 0:
                end_with_parent(server, signal.SIGKILL)
                self._become_worker(command)
            self._pids[command["start"]] = pid
            self._answer({"started": command["start"], "pid": pid})
        elif "network" in command:
            self._answer({"network": self._renew_network(command["network"], command["bits_per_second"])})
        elif "preload" in command:
            end_with_parent(self._keeper, signal.SIGKILL)  # no handler runs while it imports
            preload(Imports(tuple(command["preload"]), command["environment"]))
            end_with_parent(self._keeper, signal.SIGTERM)
            self._answer({"preloaded": len(command["preload"])})
        elif command["signal"] in self._pids:  # not yet reaped, so that the pid is still its own
            os.kill(self._pids[command["signal"]], command["number"])

    def _renew_network(self, linked: int, bits_per_second: int) -> str:
        """Replaces the private network of the last run by a new one; returns why there is none, or ""."""
        self._network.close()
        self._network = Network([])
        try:
            self._network = self._maker.make(linked, bits_per_second)
        except OSError as error:
            return str(error)
        return ""

    def _reap(self) -> None:
        numbers = {pid: number for number, pid in self._pids.items()}
        ended = [(numbers[pid], code) for pid, code in reap() if pid in numbers]
        for number, _ in ended:
            del self._pids[number]
        if ended and not self._pids:
            end_children()
        for number, code in ended:
            self._answer({"ended": number, "code": code})

    def _become_worker(self, command: Command) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self._answers.close()
            log = reopen(Path(command["log"]))  # the launcher made it
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
                with contextlib.suppress(OSError, ValueError):  # a full disk; a stream that a user's code closed
                    stream.flush()
            os._exit(code)

    def _answer(self, values: Reply) -> None:
        self._answers.write(json.dumps(values) + "\n")


def main(framework: str, worker: str, launcher: str) -> NoReturn:
    """Imports the framework and serves, below a keeper.

    Args:
        framework: The framework to import.
        worker: The module whose `main` each worker runs.
        launcher: The id of the process that started this one.
    """

    def serve(maker: NetworkMaker) -> NoReturn:
        server = ForkServer(worker, maker)
        import_framework(framework)
        server.serve()
        server.end()

    if (seen := look(int(launcher))) is not None:
        os.environ[LAUNCHER] = f"{seen.pid} {seen.started}"
    keep(int(launcher), serve)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A cluster of Ray on this machine, as our child: a head with its client server, on 127.0.0.1 and ports of its own."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from samestep.common.runtime.parent.processes.network import HOST, free_ports
from tests.engines.commands import descendants, kill

CORES = 4
START_SECONDS = 120.0


class RayBox:
    """Runs until it is closed."""

    def __init__(self, folder: Path) -> None:
        """Starts it, and waits until it answers.

        Args:
            folder: Gets its files; its path has to be short, since sockets are in it.
        """
        port, self.port, *others = free_ports(6)
        names = ("node-manager-port", "object-manager-port", "runtime-env-agent-port", "dashboard-agent-grpc-port")
        self._folder = folder
        line = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--temp-dir={folder}"]
        line += [f"--node-ip-address={HOST}", f"--port={port}", f"--ray-client-server-port={self.port}"]
        line += [f"--num-cpus={CORES}", "--include-dashboard=false", "--object-store-memory=80000000"]
        line += [f"--{name}={each}" for name, each in zip(names, others, strict=True)]
        self.environment = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
        self._gcs, self._further = f"{HOST}:{port}", list[subprocess.Popen[bytes]]()
        self._process = self._start(line, "head.log")
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise TimeoutError(f"no Ray: {(folder / 'head.log').read_text()}")
            time.sleep(0.2)

    @property
    def target(self) -> str:
        """What `--on` takes."""
        return f"ray://{HOST}:{self.port}"

    def join(self) -> None:
        """Adds a second node to the cluster, and waits until it counts."""
        line = [str(Path(sys.executable).with_name("ray")), "start", "--block", f"--address={self._gcs}"]
        line += [f"--node-ip-address={HOST}", "--num-cpus=2", "--object-store-memory=80000000"]
        self._further.append(self._start(line, "node.log"))
        deadline = time.monotonic() + START_SECONDS
        while "Ray runtime started" not in (log := (self._folder / "node.log").read_text()):
            if self._further[-1].poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"no second node: {log}")
            time.sleep(0.2)

    def lose(self) -> None:
        """Kills the second node and all that runs on it."""
        node = self._further.pop()
        for process in (*descendants(node.pid), node.pid):
            kill(process)
        node.wait()

    def _start(self, line: list[str], log: str) -> "subprocess.Popen[bytes]":
        with (self._folder / log).open("w") as file:
            own = os.environ | self.environment
            return subprocess.Popen(line, env=own, stdout=file, stderr=file, start_new_session=True)

    def close(self) -> None:
        """Ends it."""
        while self._further:
            self.lose()
        self._process.terminate()  # the command ends what it started
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((HOST, self.port)) == 0

"""A Slurm of four nodes on this machine: its daemons as our children, without systemd, all files in one folder."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from samestep.common.runtime.parent.processes.network import free_ports

NODES = 4
CONFIGURATION = """
ClusterName=box
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
KillWait=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:8 State=UP
"""


def why_not() -> str:
    """Returns why there can be no Slurm here, or ""."""
    missing = [name for name in ("slurmctld", "slurmd", "munged", "sbatch", "setpriv") if not shutil.which(name)]
    if missing:
        return f"{missing[0]} is not installed: apt-get install slurmd slurmctld munge slurm-client"
    return "" if os.getuid() == 0 else "slurmd has to be started as root"


class SlurmBox:
    """Runs until it is closed."""

    def __init__(self, folder: Path) -> None:
        """Starts the daemons, and waits until every node is idle.

        Args:
            folder: Gets their files.
        """
        os.chmod(folder, 0o755)
        host, (port, *ports) = socket.gethostname().partition(".")[0], free_ports(NODES + 1)
        nodes = "\n".join(
            f"NodeName=n{n} NodeHostname={host} NodeAddr=127.0.0.1 Port={each} CPUs=2 RealMemory=4000 State=UNKNOWN"
            for n, each in enumerate(ports, 1)
        )
        for name in ("state", *(f"spool.n{n}" for n in range(1, NODES + 1))):
            (folder / name).mkdir()
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(host=host, folder=folder, port=port, nodes=nodes))
        self.environment = {"SLURM_CONF": str(configuration)}
        self._log = (folder / "daemons.log").open("w")
        named = {name: f"{folder}/munge.{name}" for name in ("sock", "key", "pid", "log", "seed")}
        self._processes = [
            self._start(
                *("munged", "--foreground", "--force", f"--socket={named['sock']}", f"--key-file={named['key']}"),
                *(f"--pid-file={named['pid']}", f"--log-file={named['log']}", f"--seed-file={named['seed']}"),
            )
        ]
        self._wait(lambda: (folder / "munge.sock").exists())
        self._processes.append(self._start("slurmctld", "-D", "-c", "-f", str(configuration)))
        for n in range(1, NODES + 1):
            self._processes.append(self._start("slurmd", "-D", "-N", f"n{n}", "-f", str(configuration)))
        self._wait(lambda: self.run("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * NODES)

    def run(self, *line: str) -> str:
        """Runs a command of Slurm; returns what it prints."""
        done = subprocess.run(
            line, env=os.environ | self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    def close(self) -> None:
        """Cancels every job, and ends the daemons."""
        self.run("scancel", "--full", "--signal=KILL", "--user=root")
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
        self._log.close()

    def _start(self, *line: str) -> "subprocess.Popen[str]":
        with_us = ("setpriv", "--pdeathsig", "KILL")  # else they would outlive a session of tests that is killed
        return subprocess.Popen(
            [*with_us, *line], env=os.environ | self.environment, stdout=self._log, stderr=self._log, text=True, cwd="/"
        )

    def _wait(self, is_there: Callable[[], bool], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not is_there():
            if time.monotonic() > deadline:
                self.close()
                raise TimeoutError(f"no Slurm within {seconds:g} s; see {self._log.name}")
            time.sleep(0.1)

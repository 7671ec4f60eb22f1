"""A Slurm of four nodes on this machine: its daemons as our children, without systemd, all files in one folder."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from samestep.common.runtime.parent.processes.network import free_ports
from tests.engines.commands import kill, processes_with

NODES = 4
JOB_SECONDS = 200.0
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
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerNode=3000
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
JobRequeue=1
KillWait=2
OverTimeLimit=0
SlurmdTimeout=12
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:8 PreemptMode=OFF State=UP
PartitionName=scavenger Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=requeued Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=9 State=UP
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
        self._nodes = {f"n{n}": self._start_node(f"n{n}") for n in range(1, NODES + 1)}
        self._wait(lambda: self.run("sinfo", "-h", "-N", "-p", "all", "-o", "%T").split() == ["idle"] * NODES)

    def run(self, *line: str) -> str:
        """Runs a command of Slurm; returns what it prints."""
        done = subprocess.run(
            line, env=os.environ | self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    def state(self, job: str) -> str:
        """Returns the state of a job.

        Args:
            job: Its number.
        """
        return self.run("scontrol", "show", "job", job).partition("JobState=")[2].partition(" ")[0]

    def cancel(self, job: str) -> None:
        """Cancels a job.

        Args:
            job: Its number.
        """
        self.run("scancel", job)

    def finish(self, script: Path) -> str:
        """Submits a script and waits for the end of its job; `sbatch --wait` looks after 2, 10 and 42 s.

        Args:
            script: The script.

        Returns:
            The state of the job at its end, and what it printed.
        """
        job = self.run("sbatch", "--parsable", str(script)).strip()
        deadline = time.monotonic() + JOB_SECONDS
        while (state := self.state(job)) in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            if time.monotonic() > deadline:
                self.cancel(job)
            time.sleep(0.1)
        return f"{state}\n{(script.parent / f'slurm-{job}.log').read_text()}"

    def lose(self, node: str) -> None:
        """Kills the daemon of a node and all that runs on it, as when its power fails.

        Args:
            node: Its name.
        """
        self._nodes[node].kill()
        self._nodes[node].wait()
        tasks = list(processes_with("SLURMD_NODENAME", node))
        for process in (
            *map(_parent_of, tasks),
            *tasks,
        ):  # the daemon of a step first, which would tell how its tasks ended
            kill(process)

    def restore(self, node: str) -> None:
        """Starts the daemon of a node again, and waits until the node may have work.

        Args:
            node: Its name.
        """
        self._nodes[node] = self._start_node(node)
        self._wait(lambda: self.run("sinfo", "-h", "-n", node, "-p", "all", "-o", "%T").strip() == "idle")

    def close(self) -> None:
        """Cancels every job, and ends the daemons and whatever is left of jobs."""
        self.run("scancel", "--full", "--signal=KILL", "--user=root")
        self.run("scancel", "--user=root")  # those that wait
        deadline = time.monotonic() + 10
        while self.run("squeue", "--noheader").strip() and time.monotonic() < deadline:
            time.sleep(0.1)
        processes = [*self._processes, *self._nodes.values()]
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
        for left in processes_with("SLURM_CONF", self.environment["SLURM_CONF"]):
            kill(left)
        self._log.close()

    def _start_node(self, node: str) -> "subprocess.Popen[str]":
        return self._start("slurmd", "-D", "-N", node, "-f", self.environment["SLURM_CONF"])

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


def _parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

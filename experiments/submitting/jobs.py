"""Jobs of the engines with which samestep starts runs, through the engines' own commands, and checks that these are reachable."""

import contextlib
import dataclasses
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, Refused, Unavailable
from samestep.common.files.writing import create
from samestep.common.runtime.parent.job_executor import Job, JobEnd, JobExecutor
from samestep.common.runtime.parent.processes.crash_report import ending, read_log
from samestep.common.strategy import Run
from samestep.experiments.submitting.targets import STARTED, Target, write_script

CONNECT_SECONDS = 5.0
_COMMANDS = {"slurm": ("sbatch", "slurm-client"), "mpi": ("mpirun", "openmpi-bin")}
"""The command that submits a run to an engine, and the Debian package that has it."""
CANCEL_SECONDS = 15.0
"""How long an engine may take to end a job."""
_WAITS = "waits for "
"""The beginning of a line in which Ray's driver prints what it waits for."""
_KILLED = ("BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT")
_ENDED = ("COMPLETED", "FAILED", *_KILLED)
"""The states of a job that Slurm or a user has ended, and of any job that has ended; in another state, it may still run."""

_SPEAKER = re.compile(r"^sbatch: ((error|fatal): )?")
_AWAY = re.compile(r"configuration (source|file)|[Uu]nable to contact|timed out|[Cc]onnection refused|no answer within")
"""The beginnings of sbatch's lines, and its messages if it cannot reach Slurm."""


class SlurmJob:
    """A job of Slurm, queried by its number."""

    def __init__(self, script: Path) -> None:
        """Submits a script.

        Args:
            script: The script.

        Raises:
            Refused: Slurm refuses it.
            Unavailable: Slurm does not answer.
        """
        done = _command("sbatch", "--parsable", str(script))
        if done.returncode:
            said = "; ".join(_SPEAKER.sub("", line) for line in done.stderr.splitlines())
            if _AWAY.search(said):
                raise Unavailable(
                    f"Slurm does not answer: {said}; `scontrol ping` says whether its controller is up. To submit the run "
                    "elsewhere, prepare it: --prepare --for slurm"
                )
            raise Refused(f"Slurm refuses the job: {said}")
        self.number = done.stdout.partition(";")[0].strip()
        self.name, self.log = f"Slurm's job {self.number}", script.parent / f"slurm-{self.number}.log"
        self._fields: dict[str, str] = {"JobState": "PENDING"}
        self._answers = True

    def ended(self) -> JobEnd | None:
        """Returns how it ended, by `scontrol show job`; None if it has not ended."""
        done = _command("scontrol", "show", "job", self.number)
        if done.returncode == 0:
            self._fields |= dict(re.findall(r"\b(JobState|Reason)=(\S+)", done.stdout))
        elif "Invalid job id" in done.stderr:
            return JobEnd("Slurm has forgotten it")
        self._answers = done.returncode == 0
        state = self._fields["JobState"]  # the last known state, if Slurm does not answer
        return JobEnd(state, state in _KILLED) if state in _ENDED else None

    def waits_for(self) -> str:
        """Returns Slurm's reason why it was pending at the last query, or that Slurm did not answer."""
        if not self._answers:
            return "for Slurm, which does not answer; its state is that of the last answer"
        is_known = self._fields["JobState"] == "PENDING" and self._fields.get("Reason") != "None"
        return self._fields.get("Reason", "").replace("_", " ") if is_known else ""

    def cancel(self) -> bool:
        """Cancels the job, and waits until it has ended; returns whether it has."""
        _command("scancel", self.number)
        return _wait_until(lambda: self.ended() is not None)


class ProcessJob:
    """A command of an engine that runs as long as the job does."""

    def __init__(self, engine: str, script: Path, line: Sequence[str], environment: dict[str, str]) -> None:
        """Starts the command.

        Args:
            engine: The name of the engine.
            script: The script.
            line: The command that runs the script.
            environment: Variables that are added to the current environment.
        """
        self.log = script.parent / f"{engine}.log"
        with os.fdopen(create(self.log), "wb") as log:
            self._process = subprocess.Popen(
                [*line, str(script)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | environment,
                start_new_session=True,  # Ctrl-C reaches only this process, which cancels the job
            )
        self.name = f"{line[0]} {script.name} (process {self._process.pid})"

    def ended(self) -> JobEnd | None:
        """Returns how the command ended; None if it has not ended."""
        code = self._process.poll()
        return None if code is None else JobEnd(ending(code), code < 0)

    def waits_for(self) -> str:
        """Returns what it waits for, if the last line of the log names it, as that of Ray's driver does; otherwise ""."""
        last = read_log(self.log).rstrip().rpartition("\n")[2]
        return last.removeprefix(_WAITS) if last.startswith(_WAITS) else ""

    def cancel(self) -> bool:
        """Ends the command, which ends its processes, and then kills those that still run here."""
        self._process.terminate()
        _wait_until(lambda: self._process.poll() is not None)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return True


def _command(*line: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        raise Unavailable(f"{line[0]} is not on this machine; start the run where {line[0]} is.") from None
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(line, 1, "", "no answer within 60 s")


def _wait_until(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + CANCEL_SECONDS
    while not (found := is_so()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Variables without which Open MPI refuses to run as root, which may be the only user in a container."""
_SUBMIT: Mapping[str, Callable[[Path], Job]] = {
    "slurm": SlurmJob,
    "mpi": lambda script: ProcessJob("mpi", script, ["bash"], _AS_ROOT if os.getuid() == 0 else {}),
    "torchrun": lambda script: ProcessJob("torchrun", script, ["bash"], {}),
    "ray": lambda script: ProcessJob("ray", script, [sys.executable], {}),
}


def _check_reach(target: Target) -> None:
    """Refuses an engine that cannot be reached from this machine.

    Raises:
        ConfigError: The file with the hosts does not exist.
        Unavailable: The engine's command does not exist, or nothing answers at its address.
    """
    command, package = _COMMANDS.get(target.engine, ("", ""))
    if command and not shutil.which(command):
        raise Unavailable(f"{command} is not on this machine; start the run where it is, or: apt-get install {package}")
    hostfile = target.settings.get("hostfile")
    if hostfile and not Path(hostfile).is_file():
        raise ConfigError(
            f"--on {target}: there is no file '{hostfile}'; write one with a line a host, as in 'node-1 slots=2'."
        )
    if target.engine == "ray":
        _check_ray(target.settings["address"])


def _check_ray(address: str) -> None:
    if importlib.util.find_spec("ray") is None:
        raise Unavailable("ray is not installed: pip install 'samestep[ray]'")
    if at := re.fullmatch(r"(?:ray://)?(.+):(\d+)", address):
        try:
            socket.create_connection((at[1], int(at[2])), CONNECT_SECONDS).close()
        except OSError as error:
            why = f"nothing answers at {address} ({error})"
            start = "ray start --head --ray-client-server-port=10001"
            raise Unavailable(f"{why}; start Ray there, as in '{start}'.") from None


def executor_of(target: Target) -> JobExecutor:
    """Returns the object that executes runs under an engine, in place of a launcher.

    Args:
        target: The engine and its settings.

    Raises:
        ConfigError: samestep cannot start runs there.
        Unavailable: The engine cannot be reached from this machine.
    """
    if target.engine not in STARTED:
        raise ConfigError(
            f"--on {target.engine}: samestep starts no runs there; write what does with --prepare --for {target.engine}. "
            f"Choose from: {', '.join(STARTED)}."
        )
    if target.engine == "torchrun" and target.nodes > 1:
        raise ConfigError(
            "--on torchrun starts this machine's processes alone; leave out nodes, or use --prepare --for."
        )

    _check_reach(target)

    def hand_over(directory: Path, run: Run) -> Job:
        nodes = min(target.nodes, len(run.strategy.topology(run)))  # a row of a comparison may have fewer processes
        return _SUBMIT[target.engine](write_script(dataclasses.replace(target, nodes=nodes), run, directory))

    return JobExecutor(hand_over)

"""Commands that a test starts, in process groups of their own; none of them outlives its test."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from samestep.common.runtime.processes import read_environment

ROOT = Path(__file__).parents[2]
WORKLOAD = ["--workload", "digits-mlp+width=32", "--batch-size", "48", "--dtype", "float64", "--devices", "2"]
ENDLESS = ["--steps", "9000000", "--no-parity"]
Process = subprocess.Popen[str]
Command = Callable[..., Process]
"""Starts `samestep WORDS`, with an environment besides the present one, behind words such as `ip netns exec`."""


@contextlib.contextmanager
def commands() -> Iterator[Command]:
    """Starts commands, and ends those that still run at the end: with Ctrl-C, which cancels their jobs, or else for good."""
    started: list[Process] = []

    def start(*words: str, environment: Mapping[str, str], behind: Sequence[str] = ()) -> Process:
        line, own = [*behind, sys.executable, "-m", "samestep", *words], {**os.environ, **environment}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(line, cwd=ROOT, env=own, text=True, start_new_session=True, **pipes))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            end(each)


def end(process: Process) -> None:
    """Ends a command and all that it started, if it runs."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            for each in (*descendants(process.pid), process.pid):
                kill(each)
            process.wait()
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()


def kill(process: int) -> None:
    """Kills a process, if it is there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def descendants(process: int, of: str = "") -> list[int]:
    """The processes below one whose command line has a word, the nearest first."""
    found, above = [], [process]
    while above:
        each = above.pop(0)
        with contextlib.suppress(OSError):  # it has ended
            listed = [*map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())]
            above += listed
            found += [pid for pid in listed if of in Path(f"/proc/{pid}/cmdline").read_text()]
    return found


def workers_of(directory: Path) -> list[int]:
    """The processes of a run, wherever an engine put them."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = each.read_bytes().decode().split("\0")
        except OSError:
            continue
        if [word for word in words if word not in ("-u", "-P")][1:5] == ["-m", "samestep", "worker", str(directory)]:
            found.append(int(each.parent.name))
    return found


def processes_with(variable: str, value: str) -> Iterator[int]:
    """The processes that have a variable of the environment, such as the tasks that Slurm runs on a node."""
    for each in Path("/proc").glob("[0-9]*"):
        if f"{variable}={value}".encode() in read_environment(int(each.name)):
            yield int(each.name)

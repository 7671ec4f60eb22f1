"""A worker that starts other processes, as a user's model may, and then ends or stays; its import takes `IMPORT_SECONDS`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

STARTS, ENDS, IMPORT_SECONDS = "STARTS", "ENDS", "IMPORT_SECONDS"
time.sleep(float(os.environ.get(IMPORT_SECONDS, "0")))


def fork() -> None:
    """A child that ignores what it can."""
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        _stay()


def popen() -> None:
    """Another program."""
    _note(subprocess.Popen(["sleep", "300"]).pid)


def popen_in_a_session() -> None:
    """Another program, in a session of its own and without our environment."""
    _note(subprocess.Popen(["sleep", "300"], start_new_session=True, env={"PATH": os.environ["PATH"]}).pid)


def daemon() -> None:
    """A grandchild whose parent has ended, in a session of its own, as daemons are made."""
    if (child := os.fork()) == 0:
        os.setsid()
        if os.fork() == 0:
            _stay()
        os._exit(0)
    os.waitpid(child, 0)


def family() -> None:
    """A child with children of its own, one of them a stopped one."""
    if os.fork() == 0:
        fork()
        stopped = subprocess.Popen(["sleep", "300"])
        os.kill(stopped.pid, signal.SIGSTOP)
        _note(stopped.pid)
        _stay()


KINDS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (fork, popen, popen_in_a_session, daemon, family)
}
COUNTS = {"fork": 1, "popen": 1, "popen_in_a_session": 1, "daemon": 1, "family": 3}


def _stay() -> None:
    _note(os.getpid())
    time.sleep(300)
    os._exit(0)


def _note(pid: int) -> None:
    Path(sys.argv[-1]).with_name("pids").open("a").write(f"{pid}\n")


def main(arguments: list[str]) -> int:
    """Starts them and ends as it is told."""
    sys.argv = ["worker", str(Path(arguments[0], "worker"))]
    for kind in os.environ[STARTS].split(",") if os.environ.get(STARTS) else ():
        KINDS[kind]()
    wanted = sum(COUNTS[kind] for kind in os.environ.get(STARTS, "").split(",") if kind)
    noted = Path(arguments[0], "pids")
    while wanted and (not noted.exists() or noted.read_text().count("\n") < wanted):
        time.sleep(0.01)
    Path(arguments[0], "ready").touch()
    if os.environ[ENDS] == "exits":
        os._exit(0)
    if os.environ[ENDS] == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ[ENDS] == "stays":
        time.sleep(300)
    return 0

"""Ends what tests of engines started if pytest itself is ended or killed, when no fixture closes anything.

Everything that a process of tests starts inherits a variable of the environment that names it. What it makes on the machine has
its name: network namespaces, and files in the folder for temporary ones. A process beside it waits for its end.
"""

import contextlib
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.engines.commands import ROOT, descendants, kill, processes_with

MARK = "SAMESTEP_KEPT_BY"
_CLEAN_SECONDS = 20.0


def own_name() -> str:
    """What the names of all that this process makes on the machine begin with."""
    return f"samestep-{os.getpid()}"


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Has what is started meanwhile ended with the present process."""
    os.environ[MARK] = own_name()
    line = [sys.executable, "-m", "tests.engines.keeper", str(os.getpid())]
    unmarked = {name: value for name, value in os.environ.items() if name != MARK}
    quiet = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }  # whoever reads what we print waits for no one else
    keeper = subprocess.Popen(line, cwd=ROOT, env=unmarked, start_new_session=True, **quiet)
    try:
        yield
    finally:
        keeper.kill()
        keeper.wait()
        del os.environ[MARK]


def clean(name: str) -> None:
    """Kills what has a name in its environment, with all below it, and removes what is called by it.

    Args:
        name: Of a process that has ended.
    """
    deadline = time.monotonic() + _CLEAN_SECONDS
    while (left := [*processes_with(MARK, name)]) and time.monotonic() < deadline:
        for process in [each for one in left for each in (one, *descendants(one))]:
            kill(process)
        time.sleep(0.05)
    for space in Path("/run/netns").glob(f"{name}-*"):
        subprocess.run(["ip", "netns", "delete", space.name], check=False)
    for path in Path(tempfile.gettempdir()).glob(f"{name}-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    watched = int(sys.argv[1])
    with contextlib.suppress(ProcessLookupError):  # it has ended already
        watch = os.pidfd_open(watched)
        if os.getppid() == watched:
            select.select([watch], [], [])
    clean(f"samestep-{watched}")

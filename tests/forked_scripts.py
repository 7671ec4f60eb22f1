"""Runs scripts in processes of their own, forked from one of the session's that has imported the framework already."""

import contextlib
import runpy
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from tests.one_batch_worker import WORKER

_SCRIPT, _PRINTED = "script.py", "printed"


def run_forked(
    launcher: Launcher, framework: str, folder: Path, script: str, package: str = "", preload: Sequence[str] = ()
) -> str:
    """What a script prints.

    Args:
        launcher: Of the session.
        framework: What its process has imported.
        folder: An empty one.
        script: The script.
        package: What it needs beside the framework.
        preload: Modules that its process has imported as well.
    """
    (folder / _SCRIPT).write_text(textwrap.dedent(script))
    server = launcher._server(framework, 1, 60.0, package)
    server.wait_ready()
    server.preload(preload)
    number = server.start_worker(folder, folder / "log", {WORKER: __name__}, None)
    assert end_of(server, number) == 0, (folder / "log").read_text()
    return (folder / _PRINTED).read_text()


def end_of(server: ForkClient, number: int) -> int:
    """The exit code of a worker that is no process of a run; one that does not end fails."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        for answer in server.poll(0.5):
            if answer.get("ended") == number:
                return int(answer["code"])
    raise AssertionError(f"worker {number} runs on")


def main(arguments: list[str]) -> int:
    """Runs the script in a folder; what it prints goes to a file, since a log has what libraries print as well."""
    folder = Path(arguments[0])
    with (folder / _PRINTED).open("w") as file, contextlib.redirect_stdout(file):
        runpy.run_path(str(folder / _SCRIPT))
    return 0

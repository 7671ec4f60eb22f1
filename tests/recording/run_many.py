"""Records scripts in processes that are forked off this one, which has their framework.

`python -m tests.recording.run_many NAME PID` has the framework of a name, and ends after the process of a number.

Its input is a socket, to which the workers of a test session connect. Each line of theirs has cases, and the answer is a line:
the first that failed, and what all have printed.
"""

import atexit
import functools
import importlib
import json
import os
import runpy
import select
import socket
import sys
import tempfile
import time
from typing import NoReturn

from museum.forks import run_forked
from samestep.common.runtime.imports import import_modules

TORCH = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "samestep.torch_impl.recording",
)
"""What is shared with scripts: every optimizer imports the first at its first step, and `fit` of Keras on PyTorch tensorflow."""
IMPORTED = {
    "torch": TORCH,
    "keras": ("keras", "samestep.tf_impl.recording.hooks", "samestep.tf_impl.recording"),
    "keras on torch": ("keras", "tensorflow", "samestep.torch_impl.recording"),
}
SECONDS = 450


def run(script: str, arguments: list[str], options: dict[str, object] | None, rank: int) -> object:
    """Runs a script as it is, or recorded where there are options; returns what it leaves."""
    if options is not None:
        importlib.import_module(IMPORTED[sys.argv[1]][-1]).install(json.dumps(options))
    sys.argv = [script, *arguments]
    kept = None
    try:
        kept = runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        atexit._run_exitfuncs()
    return kept


def answer(cases: list[tuple[str, list[str], dict[str, object] | None, int]]) -> dict[str, str]:
    """Runs scripts one after the other, until one fails, or does not end in time: whoever asks waits no longer than that."""
    failed, ends = "", time.monotonic() + SECONDS
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        for *case, world in cases:
            left = ends - time.monotonic()
            if not failed and not run_forked(functools.partial(run, *case), world, world > 1, timeout_seconds=left):
                failed = " ".join([case[0], *case[1]])
        out.seek(0)
        err.seek(0)
        return {"failed": failed, "out": out.read().decode(), "err": err.read().decode()}


def serve(listening: socket.socket, starter: int) -> None:
    """Forks off a process for each worker that connects, until all have ended, and the one that started this.

    Args:
        listening: What they connect to.
        starter: The number of the process that started this.
    """
    workers = 0
    while workers or os.getppid() == starter:
        if select.select([listening], [], [], 0.2)[0]:
            connection, _ = listening.accept()
            if not os.fork():
                listening.close()
                answer_all(connection)
            connection.close()
            workers += 1
        while workers and os.waitpid(-1, os.WNOHANG)[0]:
            workers -= 1


def answer_all(connection: socket.socket) -> NoReturn:
    """Answers each line of a worker, in a group of processes of its own, which that worker may kill: its number comes first."""
    os.setpgid(0, 0)
    with connection.makefile("rw") as stream:
        print(os.getpid(), file=stream, flush=True)
        for line in stream:
            print(json.dumps(answer(json.loads(line))), file=stream, flush=True)
    os._exit(0)


if __name__ == "__main__":
    listening = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    framework = sys.argv[1]
    backend = "torch" if "torch" in framework else "tensorflow"
    if framework != "torch":  # whose scripts choose for themselves
        os.environ["KERAS_BACKEND"] = backend
    import_modules(
        IMPORTED[framework]
    )  # its objects are frozen: the recorder looks through those of a script's process
    if "torch" in framework:
        sys.modules["torch"].set_num_threads(1)  # a pool of threads would not survive the fork
    if "keras" in framework:
        assert sys.modules["keras"].backend.backend() == backend
    serve(listening, int(sys.argv[2]))
    os._exit(0)

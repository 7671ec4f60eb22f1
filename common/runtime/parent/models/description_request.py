"""Makes a worker describe the user's model, since the parent never imports the user's file."""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import ANSWERED, DESCRIBE, read_error, write_json
from samestep.common.runtime.parent.processes.crash_report import last_lines, read_log
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.workload.declared import absolute_source

_POLL_SECONDS = 0.5
LOG = "describe.log"


Servers = Callable[[str, int, float], ForkClient]
"""(framework, threads, seconds that it may be stopped) -> the fork server of a framework."""


def describe(config: RunConfig, scratch: Path, server: Servers) -> str:
    """Describes a model in the framework of a request.

    Args:
        config: Names the model, the data and the seed.
        scratch: The folder in which the description may be made.
        server: Finds the fork server.

    Returns:
        The folder of the description.

    Raises:
        ConfigError: The file, the model or the data are invalid, end the process, or take too long.
    """
    directory = Path(tempfile.mkdtemp(dir=scratch, prefix="model-"))
    ask_description(directory, config)
    run_tasks({directory: config.framework}, config, server)
    return str(directory)


def ask_description(directory: Path, config: RunConfig) -> None:
    """Writes the request for a description.

    Args:
        directory: Where the description will be.
        config: Names the model, the data and the seed.

    Raises:
        ConfigError: The request names no data.
    """
    if config.data is None:
        raise ConfigError(f"--model {config.model} needs data; add --data ARRAYS.npz or --data FILE.py:FUNCTION.")
    model = absolute_source(str(config.model))
    asked = {
        "framework": config.framework,
        "model": model,
        "data": config.data,
        "seed": config.seed,
    }
    directory.mkdir(exist_ok=True)
    write_json(directory / DESCRIBE, asked)


def run_tasks(tasks: Mapping[Path, str], config: RunConfig, server: Servers) -> None:
    """Runs one worker for each directory, in parallel; each does what the request in its directory asks for.

    Args:
        tasks: Directory -> framework.
        config: Names the model, for messages, and the threads.
        server: Finds the fork servers.

    Raises:
        ConfigError: The first error among them: an invalid file, or a process that crashed or took too long.
    """
    clients = {framework: server(framework, config.threads, config.timeout_seconds) for framework in tasks.values()}
    started = {}
    for directory, framework in tasks.items():
        clients[framework].wait_ready()
        started[directory] = clients[framework].start_worker(directory, directory / LOG, {}, None)
    for directory, worker in started.items():
        client = clients[tasks[directory]]
        code = _end(client, worker, config)
        _, left = read_error(directory) or ("", None)
        if left is not None:
            raise left
        if code or not (directory / ANSWERED).exists():
            raise _blame(code, config, client.ending(worker, code), last_lines(read_log(directory / LOG), 1).strip())
        (directory / ANSWERED).unlink()


def _blame(code: int, config: RunConfig, ending: str, words: str) -> ConfigError:
    """Returns the error of a process that ended too early and without an `error.json`, which our own code would have left."""
    why = (
        "the file, a package that it imports, or a lack of memory crashes it"
        if code < 0
        else "the file ends the process (sys.exit, os._exit), and a builder only has to return the model"
    )
    last = f": {words}" if words else ""
    return ConfigError(f"--model {config.model}: the process that builds it {ending} before it was done; {why}{last}")


def _end(client: ForkClient, worker: int, config: RunConfig) -> int:
    """Waits for a worker; returns its exit code."""
    deadline = time.monotonic() + config.timeout_seconds
    while time.monotonic() < deadline:
        for answer in client.poll(_POLL_SECONDS):
            if answer.get("ended") == worker:
                return int(answer["code"])
    client.signal_worker(worker, 9)
    raise ConfigError(
        f"--model {config.model}: the process that builds it took more than {config.timeout_seconds:g} s; give more with "
        "--timeout-seconds."
    )

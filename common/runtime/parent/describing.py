"""Has a worker describe the user's model: the parent itself never imports their file."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import DESCRIBE, read_error, write_json
from samestep.common.runtime.parent.fork_client import ForkClient
from samestep.common.workload.declared import split_source

_POLL_SECONDS = 0.5


def describe(config: RunConfig, scratch: Path, server: Callable[[str, int], ForkClient]) -> str:
    """Describes a model in the framework of a request.

    Args:
        config: Names the model, the data and the seed.
        scratch: Where the description may go.
        server: (framework, threads) -> the fork server of a framework.

    Returns:
        The folder of the description.

    Raises:
        ConfigError: The file, the model or the data are not what they have to be.
        WorkerFailed: The worker died, or took too long.
    """
    if config.data is None:
        raise ConfigError(f"--model {config.model} needs data; add --data ARRAYS.npz or --data FILE.py:FUNCTION.")
    path, name = split_source(str(config.model))
    directory = Path(tempfile.mkdtemp(dir=scratch, prefix="model-"))
    asked = {
        "framework": config.framework,
        "model": f"{path.resolve()}:{name}",
        "data": config.data,
        "seed": config.seed,
    }
    write_json(directory / DESCRIBE, asked)
    client, log = server(config.framework, config.threads), directory / "describe.log"
    client.wait_ready()
    code = _end(client, client.start_worker(directory, log, {}, None), config.timeout_seconds)
    if code:
        _, left = read_error(directory) or ("", None)
        words = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise left or WorkerFailed(
            f"the process that describes {config.model} ended with code {code}: {''.join(words)}"
        )
    return str(directory)


def _end(client: ForkClient, worker: int, timeout_seconds: float) -> int:
    """Waits for a worker; returns its exit code."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        for answer in client.poll(_POLL_SECONDS):
            if answer.get("ended") == worker:
                return int(answer["code"])
    client.signal_worker(worker, 9)
    raise WorkerFailed(f"building the model took more than {timeout_seconds:g} s; give more with --timeout-seconds.")

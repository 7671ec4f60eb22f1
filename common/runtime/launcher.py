"""Starts a run's processes, watches them, and turns what they leave into a result."""

import dataclasses
import datetime
import socket
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from common.config import RunConfig
from common.errors import ConfigError, SamestepError, WorkerFailed
from common.runtime import verdict
from common.runtime.directory import refuse_taken
from common.runtime.records import (
    RunResult,
    read_config,
    read_state,
    reserve_error,
    write_error,
    write_json,
)
from common.runtime.topology import resolve as resolve_environment
from common.runtime.warm import WarmServer
from common.runtime.watch import Progress, Watch
from common.runtime.worker import LAUNCHED_AT
from common.strategy import TrainState, strategy_info
from common.workload.table import Workload
from common.workload.table import resolve as resolve_workload

HOST = "127.0.0.1"


class Launcher:
    """Runs configurations one after the other, each framework imported once. Use it as a context manager."""

    def __init__(self, worker: str = "common.runtime.worker") -> None:
        """Starts nothing yet.

        Args:
            worker: The module whose `main` each process runs.
        """
        self._worker = worker
        self._servers: dict[tuple[str, int], WarmServer] = {}
        self.last_run: Path | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="samestep-")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers.values():
            server.close()
        self._scratch.cleanup()

    def warm(self, frameworks: Iterable[str], threads: int = 1) -> None:
        """Imports frameworks ahead of their first run, side by side, so that no run is timed beside an import."""
        servers = [self._server(framework, threads) for framework in frameworks]
        for server in servers:
            server.wait_ready()

    def run(
        self,
        config: RunConfig,
        workload: Workload,
        progress: Progress | None = None,
        launched_at: float | None = None,
        environment: dict[str, str] | None = None,
    ) -> RunResult:
        """Runs a checked configuration to its end, its parity judged.

        Args:
            config: From `check`.
            workload: From `check`.
            progress: Told of every window.
            launched_at: When the command was given (`time.time()`); now, if it is not told.
            environment: Added to every process's.

        Returns:
            The result; one that missed parity has the status "not the same step".

        Raises:
            SamestepError: The run did not end well; its directory holds the `error.json`.
        """
        launched_at = launched_at or time.time()
        self.last_run = run = prepare(config)
        self.execute(run, config, progress, launched_at, environment)
        seconds = time.time() - launched_at

        def replay(steps: int) -> tuple[list[float], TrainState]:
            again = Path(tempfile.mkdtemp(dir=self._scratch.name))
            self.execute(_opened(again, dataclasses.replace(config, steps=steps)), environment=environment)
            return verdict.read_losses(again), read_state(again)

        def oracle(asked: RunConfig, budget_seconds: float | None) -> Path | None:
            return self._oracle(asked, budget_seconds)

        try:
            return verdict.finish(run, config, workload, seconds, oracle, replay)
        except OSError as error:  # a disk that is full, most likely
            failure = WorkerFailed(f"the run in {run} trained, but its result cannot be written: {error}")
            write_error(run, "parent", failure)
            raise failure from None
        except BaseException as error:
            write_error(run, "parent", error)
            raise

    def execute(
        self,
        run: Path,
        config: RunConfig | None = None,
        progress: Progress | None = None,
        launched_at: float | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Starts the processes of a prepared run directory and waits for them.

        Raises:
            SamestepError: A process failed; nothing is left running.
        """
        config = config or read_config(run)
        specs = strategy_info(config.framework, config.strategy).topology(config)
        addresses = [(HOST, port) for port in free_ports(len(specs))]
        shared = {LAUNCHED_AT: str(launched_at or time.time()), **(environment or {})}
        try:
            server = self._server(config.framework, config.threads)
            workers = {}
            watch = Watch(run, config, server, workers, progress)
            try:
                for spec in specs:
                    own = shared | resolve_environment(spec, addresses)
                    workers[server.start(run, run / f"{spec.role}.log", own)] = spec
            except BaseException:
                watch.stop()
                raise
            watch.wait()
        except KeyboardInterrupt:
            write_error(run, "parent", WorkerFailed(f"the run in {run} was interrupted"), first=False)
            raise
        except SamestepError as error:
            write_error(run, "parent", error, first=False)
            raise

    def _server(self, framework: str, threads: int) -> WarmServer:
        key = (framework, threads)
        if key not in self._servers or not self._servers[key].alive:
            self._servers[key] = WarmServer(
                framework, threads, self._worker if framework != "numpy" else "common.runtime.worker"
            )
        return self._servers[key]

    def _oracle(self, config: RunConfig, budget_seconds: float | None) -> Path | None:
        """Runs the oracle in a scratch directory; None if it would take longer than the budget."""
        run = _opened(Path(tempfile.mkdtemp(dir=self._scratch.name)), config)
        started = time.monotonic()

        trained, taken = 0.0, 0

        def check_budget(step: int, losses: list[float], seconds: float) -> None:
            nonlocal trained, taken
            trained, taken = trained + seconds, taken + len(losses)
            left = (config.steps or step) - step
            projected = time.monotonic() - started + trained / taken * left
            if budget_seconds is not None and taken > 1 and projected > budget_seconds:
                raise _OverBudget

        try:
            self.execute(run, config, check_budget)
        except _OverBudget:
            return None
        return run


class _OverBudget(Exception):
    """The oracle would take longer than it may."""


def prepare(config: RunConfig) -> Path:
    """Makes the directory of a run and writes `config.json`.

    Raises:
        ConfigError: `--out` already holds a run, or cannot be written.
    """
    if config.out is None:
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        name = f"{stamp}-{config.framework}-{config.strategy}-{config.workload.partition('+')[0]}"
        path = _fresh(Path("runs") / name)
    else:
        path = Path(config.out)
    try:
        refuse_taken(path)
        path.mkdir(parents=True, exist_ok=True)
        return _opened(path, config)
    except OSError as error:
        raise ConfigError(f"--out {path} cannot be written ({error.strerror}); name another directory.") from None


def _fresh(path: Path) -> Path:
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def _opened(run: Path, config: RunConfig) -> Path:
    reserve_error(run)
    write_json(run / "config.json", config)
    return run


def free_ports(count: int) -> list[int]:
    """Ports on the loopback that are free at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def finish_alone(run: Path, config: RunConfig) -> None:
    """A launcher's last duties, done by rank 0 where something else (torchrun, by hand) started the processes.

    Raises:
        ParityFailed: It was not the same step.
    """
    workload = resolve_workload(config)
    verdict.wait_for_processes(run, config)
    with Launcher() as launcher:
        result = verdict.finish(run, config, workload, verdict.wall_seconds(run), launcher._oracle, None)
    verdict.raise_if_missed(result)

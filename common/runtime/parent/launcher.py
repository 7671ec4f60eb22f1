"""Starts a run's processes, watches them, and turns what they leave into a result."""

import dataclasses
import datetime
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from samestep.common.errors import ConfigError, SamestepError, WorkerFailed
from samestep.common.program import TrainState
from samestep.common.request import Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import open_run, read_losses, refuse_taken, write_error
from samestep.common.runtime.parent import verdict
from samestep.common.runtime.parent.fork_client import ForkClient
from samestep.common.runtime.parent.network import HOST, free_ports
from samestep.common.runtime.parent.watch import Progress, Watch
from samestep.common.runtime.records import Measured, RunResult, adapter
from samestep.common.runtime.state_file import read_state
from samestep.common.runtime.topology import LAUNCHED_AT, fill_in
from samestep.common.strategy import Run

WORKER = "samestep.common.runtime.worker.worker"


class Launcher:
    """Starts runs one after the other, each framework imported once. Use it as a context manager."""

    def __init__(self, worker: str = WORKER) -> None:
        """Starts nothing yet.

        Args:
            worker: The module whose `main` each process runs.
        """
        self._worker = worker
        self._servers: dict[tuple[str, int], ForkClient] = {}
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
        run: Run,
        launch: Launch,
        progress: Progress | None = None,
        launched_at: float | None = None,
        environment: dict[str, str] | None = None,
    ) -> RunResult:
        """Takes a run to its end and judges its parity.

        Args:
            run: From `parse`.
            launch: How to start it.
            progress: Called at every window's end.
            launched_at: When the command was given (`time.time()`); now, unless given.
            environment: Added to every process's.

        Returns:
            The result; one that missed parity has the status "not the same step".

        Raises:
            SamestepError: The run did not end well; its directory holds the `error.json`.
        """
        launched_at = launched_at or time.time()
        self.last_run = directory = prepare(run, launch)
        self.execute(directory, run, launch, progress, launched_at, environment)
        seconds = time.time() - launched_at

        def replay(steps: int) -> tuple[list[float], TrainState]:
            again, shorter = self._scratch_directory(), dataclasses.replace(run, steps=steps)
            open_run(again, as_config(shorter, launch))
            self.execute(again, shorter, launch, environment=environment)
            return read_losses(again), read_state(again)

        try:
            return verdict.finish(directory, run, launch, seconds, self.run_oracle, replay)
        except OSError as error:  # a disk that is full, most likely
            failure = WorkerFailed(f"the run in {directory} trained, but its result cannot be written: {error}")
            write_error(directory, "parent", failure)
            raise failure from None
        except BaseException as error:
            write_error(directory, "parent", error)
            raise

    def execute(
        self,
        directory: Path,
        run: Run,
        launch: Launch,
        progress: Progress | None = None,
        launched_at: float | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Starts the processes of a run directory and waits for them.

        Args:
            directory: Holds the `config.json` of the run.
            run: The run.
            launch: How to start it.
            progress: Called at every window's end.
            launched_at: When the command was given; now, unless given.
            environment: Added to every process's.

        Raises:
            SamestepError: A process failed; nothing is left running.
        """
        specs = run.strategy.topology(run)
        addresses = [(HOST, port) for port in free_ports(len(specs))]
        shared = {LAUNCHED_AT: str(launched_at or time.time()), **(environment or {})}
        try:
            server = self._server(run.framework, run.threads)
            watch = Watch(directory, run.framework, launch.timeout_seconds, server, {}, progress)
            try:
                for spec in specs:
                    own = shared | fill_in(spec, addresses)
                    watch.processes[server.start_worker(directory, directory / f"{spec.role}.log", own)] = spec
            except BaseException:
                watch.stop()
                raise
            watch.wait()
        except KeyboardInterrupt:
            write_error(directory, "parent", WorkerFailed(f"the run in {directory} was interrupted"), first=False)
            raise
        except SamestepError as error:
            write_error(directory, "parent", error, first=False)
            raise

    def _server(self, framework: str, threads: int) -> ForkClient:
        key = (framework, threads)
        if key not in self._servers or not self._servers[key].alive:
            worker = self._worker if framework != "numpy" else WORKER
            self._servers[key] = ForkClient(framework, threads, worker)
            adapter(Measured)  # made while the server imports its framework
        return self._servers[key]

    def _scratch_directory(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._scratch.name))

    def run_oracle(self, run: Run, launch: Launch, budget_seconds: float | None) -> Path | None:
        """Runs the oracle in a scratch directory.

        Args:
            run: The oracle's.
            launch: How to start it.
            budget_seconds: How long it may take; None: as long as it needs.

        Returns:
            The directory; None if it would have taken longer than the budget.
        """
        directory = open_run(self._scratch_directory(), as_config(run, launch))
        started = time.monotonic()
        trained, taken = 0.0, 0

        def check_budget(step: int, losses: list[float], seconds: float) -> None:
            nonlocal trained, taken
            trained, taken = trained + seconds, taken + len(losses)
            projected = time.monotonic() - started + trained / taken * (run.steps - step)
            if budget_seconds is not None and taken > 1 and projected > budget_seconds:
                raise _OverBudget

        try:
            self.execute(directory, run, launch, check_budget)
        except _OverBudget:
            return None
        return directory


class _OverBudget(Exception):
    """The oracle would take longer than it may."""


def prepare(run: Run, launch: Launch) -> Path:
    """Makes the directory of a run and writes `config.json`.

    Args:
        run: The run.
        launch: Names the directory, or leaves it to us.

    Raises:
        ConfigError: `--out` already holds a run, or cannot be written.
    """
    if launch.out is None:
        stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        name = f"{stamp}-{run.framework}-{run.strategy.name}-{run.workload.name.partition('+')[0]}"
        path = _fresh(Path("runs") / name)
    else:
        path = Path(launch.out)
    try:
        refuse_taken(path)
        return open_run(path, as_config(run, launch))
    except OSError as error:
        raise ConfigError(f"--out {path} cannot be written ({error.strerror}); name another directory.") from None


def _fresh(path: Path) -> Path:
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def finish_alone(directory: Path, run: Run, launch: Launch) -> None:
    """Does a launcher's last duties, on rank 0 of a run that something else started (torchrun, by hand).

    Args:
        directory: The run directory.
        run: The run.
        launch: How it was prepared.

    Raises:
        ParityFailed: It was not the same step.
    """
    verdict.wait_for_processes(directory, run, launch.timeout_seconds)
    with Launcher() as launcher:
        result = verdict.finish(directory, run, launch, verdict.wall_seconds(directory), launcher.run_oracle, None)
    verdict.raise_if_missed(result)

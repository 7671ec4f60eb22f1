"""Starts a run's processes, watches them, and turns the files that they leave into a result."""

import contextlib
import dataclasses
import functools
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.catalog import framework_info, row_module
from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.files.written import seal
from samestep.common.frameworks import ORACLE_FRAMEWORK
from samestep.common.request import Launch, RunConfig
from samestep.common.runtime.measured import Measured, adapter
from samestep.common.runtime.parent.attempts import Attempts, begin_again, prepare, recorded_end
from samestep.common.runtime.parent.judging.finishing import Finished, LaunchedRerun, finish
from samestep.common.runtime.parent.processes.following import Progress
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.runtime.parent.processes.network import start
from samestep.common.runtime.parent.processes.scratch import make_scratch
from samestep.common.runtime.parent.processes.started import hold_signals
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.runtime.topology import LAUNCHED_AT
from samestep.common.strategy import Run

if TYPE_CHECKING:  # not needed by a run of our own models
    from samestep.common.judging.ported import PortedModel
    from samestep.common.runtime.parent.job_executor import JobExecutor
    from samestep.common.runtime.parent.models.converting import WeightsFile
    from samestep.common.runtime.parent.models.descriptions import Descriptions, Ports

WORKER = "samestep.common.runtime.worker.worker"


class Launcher(contextlib.AbstractContextManager["Launcher"]):
    """Starts runs one after the other, and imports each framework only once. Use it as a context manager."""

    def __init__(self, worker: str = WORKER, executor: "JobExecutor | None" = None) -> None:
        """Makes a folder for temporary files; starts no process yet.

        Args:
            worker: The module whose `main` each process runs.
            executor: Starts the processes of runs in place of this launcher, which then only describes models.
        """
        self.executor = executor
        self._worker = worker
        self._servers: dict[tuple[str, int, str], ForkClient] = {}
        self.last_run: Path | None = None
        self._scratch = make_scratch()

    def __exit__(self, *_: object) -> None:
        with hold_signals():
            for server in self._servers.values():
                server.close()
            self._scratch.cleanup()

    def warm(
        self, frameworks: Iterable[str], threads: int = 1, timeout_seconds: float = RunConfig.timeout_seconds
    ) -> None:
        """Imports frameworks before their first run, in parallel, so no run is timed during an import.

        Args:
            frameworks: The frameworks to import.
            threads: The number of threads per device of the runs to come.
            timeout_seconds: How long a fork server may be stopped (as by SIGSTOP) before that is an error.
        """
        here = () if self.executor else frameworks
        servers = [self._server(framework, threads, timeout_seconds) for framework in here]
        for server in servers:
            server.wait_ready()

    def run(
        self,
        run: Run,
        launch: Launch,
        progress: Progress | None = None,
        launched_at: float | None = None,
        environment: dict[str, str] | None = None,
        resume: Path | None = None,
    ) -> RunResult:
        """Takes a run to its end and judges its parity.

        Args:
            run: The run from `parse`.
            launch: How to start it.
            progress: Called at every window's end.
            launched_at: When the command was given (`time.time()`); by default now.
            environment: Variables to add to the environment of every process that this launcher itself starts.
            resume: The directory of the interrupted run to continue; None starts a new run.

        Returns:
            The result; one that missed parity has the status "not the same step".

        Raises:
            SamestepError: The run failed; its directory holds the `error.json`.
        """
        launched_at = launched_at or time.time()
        self.last_run = directory = prepare(run, launch) if resume is None else begin_again(resume)
        begin = functools.partial(self._submit if self.executor else self.execute, directory)
        run = Attempts(directory, run, launch, environment or {}, progress).take(launched_at, begin)
        if self.executor:  # rank 0 has judged the run
            return load_result(directory)
        return self._judge(directory, run, launch, time.time() - launched_at, environment or {})

    def _submit(
        self, directory: Path, run: Run, launch: Launch, progress: Progress | None, environment: dict[str, str]
    ) -> None:
        """Starts an attempt as a job, whose processes read how they are started, and count attempts, in the directory."""
        assert self.executor
        self.executor.execute(directory, run, progress)

    def run_apart(self, run: Run, launch: Launch) -> RunResult:
        """Takes a run as `run` does, in a temporary directory; the arguments are those of `run`."""
        with make_scratch() as scratch:
            return self.run(run, dataclasses.replace(launch, out=f"{scratch}/run"))

    def _judge(
        self, directory: Path, run: Run, launch: Launch, seconds: float, environment: dict[str, str]
    ) -> RunResult:
        """Judges a run whose processes have ended and writes its result, or the error if it has none."""
        finished = Finished(
            directory=directory,
            run=run,
            launch=launch,
            seconds=seconds,
            alone=self.reference_rerun(launch),
            rerun=LaunchedRerun(self.execute, self._scratch.name, launch, environment),
            ask=self._ports.ask if launch.model else None,
        )
        with recorded_end(directory):
            try:
                return finish(finished)
            except (OSError, ConfigError) as error:  # a full disk, or a file that was removed or damaged
                raise WorkerFailed(f"the run in {directory} trained, but it has no result: {error}") from None

    def execute(
        self,
        directory: Path,
        run: Run,
        launch: Launch,
        progress: Progress | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Starts the processes of a run directory and waits for them.

        Args:
            directory: Holds the `config.json` of the run.
            run: The run.
            launch: How to start it.
            progress: Called at every window's end.
            environment: Variables to add to the environment of every process; LAUNCHED_AT in it replaces the present time.

        Raises:
            SamestepError: A process failed; nothing is left running.
        """
        shared = {LAUNCHED_AT: str(time.time()), **(environment or {})}
        with recorded_end(directory):
            try:
                start(directory, run, launch, self._serve(run, launch), shared, progress).wait()
            except OSError as error:  # no file descriptor is left, or no process
                raise WorkerFailed(f"the run in {directory} was ended: {error}") from None
            finally:
                seal(directory)

    def describe(self, config: RunConfig) -> RunConfig:
        """Makes a worker describe the user's model that a request names.

        Args:
            config: The request; one that names no model is returned unchanged.

        Returns:
            The request with the folder of the description, which exists as long as this launcher.

        Raises:
            ConfigError: The file, the model or the data are invalid.
            Unavailable: The framework is not installed.
            WorkerFailed: The worker died, or took too long.
        """
        if config.model is None or config.described is not None:
            return config
        return self._descriptions.describe(config)

    def port(
        self, config: RunConfig, accepted: Sequence[str] = (), checkpoint: "WeightsFile | None" = None
    ) -> "PortedModel":
        """Runs both implementations of a user's model from the same weights and judges whether they are the same.

        Args:
            config: Names the model and the data, with a batch size and steps.
            accepted: The names of accepted differences, in addition to those that the model's file accepts.
            checkpoint: Weights of one of them, to be converted for the other if both are the same model.

        Raises:
            SamestepError: A model cannot be built, or a parameter has no counterpart.
        """
        from samestep.common.runtime.parent.models.converting import convert  # here: a run does not need it
        from samestep.common.runtime.parent.models.porting import port

        with tempfile.TemporaryDirectory(dir=self._scratch.name) as folder:
            ported = port(Path(folder), config, self._server_for_models, accepted)
            if checkpoint is not None:
                convert(Path(folder), *ported, checkpoint, self._server_for_models)
            return ported

    @functools.cached_property
    def _descriptions(self) -> "Descriptions":
        from samestep.common.runtime.parent.models.descriptions import Descriptions

        return Descriptions(Path(self._scratch.name), self._server_for_models)

    @functools.cached_property
    def _ports(self) -> "Ports":
        from samestep.common.runtime.parent.models.descriptions import Ports

        return Ports(self.port)

    def _serve(self, run: Run, launch: Launch) -> ForkClient:
        """Returns a fork server that has imported a run's strategy and the modules that a user's model imports."""
        asked = run.framework, run.threads, launch.timeout_seconds, run.strategy.package
        if launch.model is None:
            server = self._server(*asked)
        else:
            server = self._descriptions.serve(run, lambda: self._server_for_models(*asked))
        # Imported once, and not by each process: torch.distributed.tensor takes a second.
        server.preload([row_module(run.framework, run.strategy.name), run.module])
        return server

    def _server(self, framework: str, threads: int, timeout_seconds: float, package: str = "") -> ForkClient:
        key = (framework, threads, package)
        if key not in self._servers or not self._servers[key].alive:
            worker = self._worker if framework != ORACLE_FRAMEWORK else WORKER
            self._servers[key] = ForkClient(framework, threads, worker, self._scratch.name)
            adapter(Measured)  # built while the server imports its framework
        self._servers[key].timeout_seconds = timeout_seconds
        return self._servers[key]

    def _server_for_models(self, framework: str, threads: int, timeout_seconds: float, package: str = "") -> ForkClient:
        server = self._server(framework, threads, timeout_seconds, package)
        server.preload([*framework_info(framework).preload_for_models, "samestep.common.workload.described"])
        return server

    def reference_rerun(self, launch: Launch) -> LaunchedRerun:
        """Returns a rerun that takes the steps of the reference of a run with this launch."""
        return LaunchedRerun(self.execute, self._scratch.name, launch.of_reference, {})

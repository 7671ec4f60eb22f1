"""Keeps the descriptions and ports of users' models, each made once for all runs of a command, and what the models import."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pydantic

from samestep.common.errors import ConfigError, SamestepError, Unavailable, WorkerFailed
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.flags import FieldValues
from samestep.common.request import Launch, RunConfig
from samestep.common.run import as_config
from samestep.common.runtime.directory import IMPORTS
from samestep.common.runtime.imports import Imports
from samestep.common.runtime.parent.models.description_request import Servers, describe
from samestep.common.runtime.parent.models.weight_transfer import transfer_weights
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.strategy import Run
from samestep.common.workload.models.description import read_description

if TYPE_CHECKING:
    from samestep.common.judging.ported import PortedModel

_MOST_BYTES = 2**24
_DECIDE = ("model", "data", "seed", "batch_size", "optimizer", "learning_rate", "timeout_seconds")
"""The fields that a port takes over from the request of a run."""


class Descriptions:
    """Makes workers describe models, and keeps the descriptions or errors, and what the models import.

    Fork servers import those modules once, so workers do not have to.
    """

    def __init__(self, scratch: Path, server: Servers) -> None:
        """Starts without descriptions.

        Args:
            scratch: Where the descriptions go.
            server: Finds the fork servers.
        """
        self._scratch, self._server = scratch, server
        self._imports: dict[tuple[str, str], Imports] = {}
        self._found: dict[tuple[str, str, str | None, int], str | ConfigError] = {}

    def describe(self, config: RunConfig) -> RunConfig:
        """Describes the model that a request names, as `Launcher.describe` does.

        Args:
            config: A request whose model has not been described.
        """
        assert config.model is not None
        key = (config.framework, config.model, config.data, config.seed)
        if key not in self._found:
            try:
                self._found[key] = self._describe(config)
            except ConfigError as error:
                self._found[key] = error  # raised again for every row of its framework
        if isinstance(found := self._found[key], ConfigError):
            raise found
        return dataclasses.replace(config, described=found)

    def _describe(self, config: RunConfig) -> str:
        """Describes a model and gives it the weights of the file's first model, if that is in another installed framework."""
        found = describe(config, self._scratch, self._server)
        description = read_description(found)
        with contextlib.suppress(Unreadable, ValueError):  # otherwise each worker imports what it needs
            noted = read_json(Path(found) / IMPORTS, _MOST_BYTES)
            self._imports[config.framework, description.source] = pydantic.TypeAdapter(Imports).validate_python(noted)
        source = description.frameworks[0]
        if source != config.framework:
            with contextlib.suppress(Unavailable):
                first = self.describe(dataclasses.replace(config, framework=source))
                transfer_weights(Path(str(first.described)), Path(found), config, self._server)
        return found

    def serve(self, run: Run, choose: Callable[[], ForkClient]) -> ForkClient:
        """Returns a fork server that has imported what the model of a run imports, as far as that is safe.

        Args:
            run: What is to be run.
            choose: Finds the server, or starts another one if the last one has ended.
        """
        server, key = choose(), (run.framework, run.workload.model.facts.source)
        if (imports := self._imports.get(key)) is not None:
            try:
                server.preload(imports.modules, imports.environment)
            except WorkerFailed:  # a package starts a thread when it is imported, or ends the process
                server.close()
                del self._imports[key]
                server = choose()
        return server


class Ports:
    """Compares the two models of a run's file, once for all the runs of a command."""

    def __init__(self, port: Callable[[RunConfig], "PortedModel"]) -> None:
        """Starts without comparisons.

        Args:
            port: Runs both implementations and compares them.
        """
        self._port = port
        self._found: dict[tuple[object, ...], PortedModel | None] = {}

    def ask(self, launch: Launch, run: Run, steps: int) -> "PortedModel | None":
        """Returns whether the two are the same model, with a curve over the batches of a run; None if comparing them fails.

        Args:
            launch: Names the model and the data.
            run: Determines the batches, the optimizer and its rate.
            steps: The steps of the curve.
        """
        own = as_config(run, launch)
        asked: FieldValues = {name: getattr(own, name) for name in _DECIDE} | {"steps": steps}
        if (key := tuple(asked.values())) not in self._found:
            try:
                self._found[key] = self._port(RunConfig(**asked))
            except SamestepError:
                self._found[key] = None
        return self._found[key]

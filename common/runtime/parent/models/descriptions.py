"""The descriptions of the user's models, each made once for all the runs of a command, and what the models import."""

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pydantic

from samestep.common.errors import ConfigError, Unavailable, WorkerFailed
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import IMPORTS
from samestep.common.runtime.imports import Imports
from samestep.common.runtime.parent.models.description_request import Servers, describe
from samestep.common.runtime.parent.models.weight_transfer import transfer_weights
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.strategy import Run
from samestep.common.workload.models.description import read_description

_MOST_BYTES = 2**24


class Descriptions:
    """Has workers describe models, and keeps what they found or why they could not.

    Attributes:
        imports: What the models import.
    """

    def __init__(self, scratch: Path, server: Servers) -> None:
        """Describes nothing yet.

        Args:
            scratch: Where the descriptions go.
            server: Finds the fork servers.
        """
        self._scratch, self._server = scratch, server
        self.imports = Preloading()
        self._found: dict[tuple[str, str, str | None, int], str | ConfigError] = {}

    def describe(self, config: RunConfig) -> RunConfig:
        """Describes the model that a request names, as `Launcher.describe` does.

        Args:
            config: Names a model that nobody described yet.
        """
        assert config.model is not None
        key = (config.framework, config.model, config.data, config.seed)
        if key not in self._found:
            try:
                self._found[key] = self._describe(config)
            except ConfigError as error:
                self._found[key] = error  # for every row of its framework
        if isinstance(found := self._found[key], ConfigError):
            raise found
        return dataclasses.replace(config, described=found)

    def _describe(self, config: RunConfig) -> str:
        """Describes a model; where the file has one in a framework that comes first, it gets that one's weights, if it can."""
        found = describe(config, self._scratch, self._server)
        self.imports.learn(config.framework, read_description(found).source, Path(found))
        source = read_description(found).frameworks[0]
        if source != config.framework:
            with contextlib.suppress(Unavailable):
                first = self.describe(dataclasses.replace(config, framework=source))
                transfer_weights(Path(str(first.described)), Path(found), config, self._server)
        return found


class Preloading:
    """What models import, by framework and file, as the workers that described them noted.

    Fork servers import it once, where each worker would import it again.
    """

    def __init__(self) -> None:
        """Knows of no model."""
        self._found: dict[tuple[str, str], Imports] = {}

    def learn(self, framework: str, source: str, folder: Path) -> None:
        """Reads what a worker noted.

        Args:
            framework: That of the worker.
            source: The model, as its description names it.
            folder: The description.
        """
        try:
            found = pydantic.TypeAdapter(Imports).validate_python(read_json(folder / IMPORTS, _MOST_BYTES))
        except (Unreadable, ValueError):  # each worker imports what it needs, as it would anyway
            return
        self._found[framework, source] = found

    def serve(self, run: Run, choose: Callable[[], ForkClient]) -> ForkClient:
        """Returns a fork server that has imported what the model of a run does, as far as that is safe.

        Args:
            run: What is to be run.
            choose: Finds the server, or starts another one if the last is gone.
        """
        server, key = choose(), (run.framework, run.workload.model.facts.source)
        if (imports := self._found.get(key)) is not None:
            try:
                server.preload(imports.modules, imports.environment)
            except WorkerFailed:  # a package starts a thread when it is imported, or ends the process
                server.close()
                del self._found[key]
                server = choose()
        return server

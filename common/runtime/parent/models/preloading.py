"""Has fork servers import the packages of a user's model once, where each worker would import them again."""

from collections.abc import Callable
from pathlib import Path

import pydantic

from samestep.common.errors import WorkerFailed
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.runtime.directory import IMPORTS
from samestep.common.runtime.imports import Imports
from samestep.common.runtime.parent.processes.fork_client import ForkClient
from samestep.common.strategy import Run

_MOST_BYTES = 2**24


class Preloading:
    """What models import, by framework and file, as the workers that described them noted."""

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

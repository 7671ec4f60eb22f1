"""The session's launcher, lent to commands, and to tests whose workers are not as usual: nothing is imported again for them."""

import contextlib
from pathlib import Path
from types import TracebackType

import pytest

from samestep.common.request import Launch
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.processes.following import Progress
from samestep.common.strategy import Run
from tests.one_batch_worker import WORKER

_STARTED_IN = (
    "samestep.api",
    "samestep.common.runtime.parent.launcher",
    "samestep.experiments.comparing.execution",
)
"""The modules that commands and functions take `Launcher` from."""


def lend(launcher: Launcher, patch: pytest.MonkeyPatch) -> None:
    """Has commands and functions in this process start their runs with the session's launcher."""
    for module in _STARTED_IN:
        patch.setattr(f"{module}.Launcher", lambda **_: contextlib.nullcontext(launcher))


class LentLauncher(Launcher):
    """Has workers do what `main` of another module does; whoever lent it closes the servers."""

    def __init__(self, launcher: Launcher, worker: str, **environment: str) -> None:
        """Shares everything with a launcher.

        Args:
            launcher: Of the session.
            worker: The module.
            environment: Variables that all its workers get: they do not have this process's, but those of when its server began.
        """
        self.__dict__ = launcher.__dict__ | {"_given": {WORKER: worker, **environment}}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the servers to the others."""

    def execute(
        self,
        directory: Path,
        run: Run,
        launch: Launch,
        progress: Progress | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """Executes as the launcher does; the arguments are the same."""
        super().execute(directory, run, launch, progress, {**self._given, **(environment or {})})

"""The end of a run's log of steps, from which its progress is shown while it grows."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from samestep.common.errors import WorkerFailed
from samestep.common.files.reading import Unreadable, open_plain, parse_json, read_bytes
from samestep.common.steps.log import METRICS, METRICS_BYTES

Progress = Callable[[int, list[float], float], None]
"""Called at every window's end with: the step reached, the window's losses, its seconds. While held-out examples are evaluated,
it is called with their number so far, no losses and no seconds."""


class StepTail:
    """Reads what was added since it looked last."""

    def __init__(self, directory: Path) -> None:
        """Starts at the end of what is there.

        Args:
            directory: The run directory.
        """
        self._directory, self._read = directory, 0
        with contextlib.suppress(Unreadable):  # what earlier attempts logged was told when they did
            self._read = read_bytes(directory / METRICS, METRICS_BYTES).rfind(b"\n") + 1

    def show(self, progress: Progress | None, step: int) -> None:
        """Shows the windows that were added.

        Args:
            progress: The function to call with each.
            step: How far the run has been seen, for messages.

        Raises:
            WorkerFailed: The log was removed or damaged.
        """
        path = self._directory / METRICS
        try:
            if not path.exists():
                if self._read and self._directory.exists():  # else it is not there yet, or all of the run is gone
                    raise WorkerFailed(f"{path} was removed; the run was at step {step}")
                return
            with open_plain(path) as file:
                file.seek(self._read)
                while (line := file.readline(METRICS_BYTES)).endswith(b"\n"):
                    self._read = file.tell()
                    values = parse_json(line)
                    if progress is not None:
                        progress(values["step"], values["losses"], values["seconds"])  # pyrefly: ignore
        except (Unreadable, ValueError, KeyError, TypeError):
            raise WorkerFailed(f"{path} is damaged; the run was at step {step}") from None

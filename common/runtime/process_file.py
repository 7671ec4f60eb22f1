"""`process-ROLE.json`: a sign of life while a process runs, what it measured at the end."""

import dataclasses
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from samestep.common.errors import WorkerFailed
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.records import Measured, validate

DONE = "done"
"""The phase of a process that has written what it measured."""


@dataclasses.dataclass(frozen=True)
class Life:
    """What a process last showed of itself.

    Attributes:
        seen: When it wrote, in seconds since the epoch; 0 if it never did.
        phase: Where it was; "" if it never wrote.
        step: How many steps it had taken.
        endpoint: The name of its usage endpoint; "" if it has none.
    """

    seen: float = 0.0
    phase: str = ""
    step: int = 0
    endpoint: str = ""


def read_life(directory: Path, role: str) -> Life:
    """Reads the last sign of life of a process.

    Args:
        directory: The run directory.
        role: The role of the process.
    """
    path = _path(directory, role)
    try:
        seen, values = path.stat().st_mtime, json.loads(path.read_text())
        endpoint = str(values.get("endpoint", ""))
        return Life(seen, str(values.get("phase", "")), int(values.get("step", 0)), endpoint)
    except (OSError, ValueError, TypeError, AttributeError):
        return Life()


def read_measured(directory: Path, role: str) -> Measured:
    """Reads what a process measured.

    Args:
        directory: The run directory.
        role: The role of the process.

    Raises:
        WorkerFailed: The file is not there, or holds something else.
    """
    path = _path(directory, role)
    try:
        return validate(Measured, json.loads(path.read_text()), f"{path} is damaged")
    except (OSError, ValueError) as error:
        raise WorkerFailed(f"{role} took all its steps, but {path} cannot be read: {error}") from None


def _path(directory: Path, role: str) -> Path:
    return directory / f"process-{role}.json"


class ProcessFile:
    """The file of the present process."""

    def __init__(self, directory: Path, role: str, rank: int, beat_seconds: float = 1.0) -> None:
        self.directory = directory
        self.role = role
        self.rank = rank
        self.phase = "start"
        self.endpoint = ""
        self._beat_seconds = beat_seconds
        self._beaten = 0.0

    def enter(self, phase: str, step: int = 0) -> None:
        """Starts a phase: "start", "build", "first step", "train", "evaluate", "finish".

        Args:
            phase: The phase that starts.
            step: The number of steps taken so far.
        """
        self.phase = phase
        self._beaten = 0.0
        self.beat(step)

    def beat(self, step: int) -> None:
        """Shows that the process is alive; writes at most every `beat_seconds`, so it may be called every step."""
        now = time.monotonic()
        if now - self._beaten > self._beat_seconds:
            self._beaten = now
            self._write({"phase": self.phase, "step": step, "endpoint": self.endpoint, "pid": os.getpid()})

    def finish(self, measured: Measured) -> None:
        """Writes what the process measured."""
        self._write({"phase": DONE, "pid": os.getpid(), **dataclasses.asdict(measured)})

    def _write(self, values: Mapping[str, object]) -> None:
        write_json(_path(self.directory, self.role), {"role": self.role, "rank": self.rank, **values})

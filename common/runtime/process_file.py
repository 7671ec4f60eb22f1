"""`process-ROLE.json`: a sign of life while a process runs, and its measurements at the end."""

import dataclasses
import json
import os
import time
from pathlib import Path

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.files.reading import Unreadable, parse_json, read_bytes, read_json
from samestep.common.files.writing import reopen
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.measured import Measured, validate
from samestep.common.steps.log import METRICS_BYTES

DONE = "done"
"""The phase of a process that has written what it measured."""
TRAIN = "train"
"""The phase of all steps but the first."""
EVALUATE = "evaluate"
"""The phase in which a process shows the number of evaluated examples in place of the step."""
_READS, _WRITE_SECONDS = 10, 0.001
"""How often a file that is half written is read again, and the seconds between two attempts."""


@dataclasses.dataclass(frozen=True)
class Life:
    """The last sign of life of a process.

    Attributes:
        seen: When it wrote, in seconds since the epoch; 0 if it never did.
        phase: The phase it was in; "" if it never wrote.
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
    for _ in range(_READS):
        try:
            # After a million steps the file is large.
            seen, text = path.stat().st_mtime, read_bytes(path, METRICS_BYTES)
        except (OSError, Unreadable):
            break
        try:
            values = parse_json(text)
            assert isinstance(values, dict)
            endpoint = str(values.get("endpoint", ""))
            return Life(seen, str(values.get("phase", "")), int(values.get("step", 0)), endpoint)
        except Unreadable:
            time.sleep(_WRITE_SECONDS)  # it is being written
        except (AssertionError, TypeError, ValueError, OverflowError):
            break
    return Life()


def read_measured(directory: Path, role: str) -> Measured:
    """Reads what a process measured.

    Args:
        directory: The run directory.
        role: The role of the process.

    Raises:
        WorkerFailed: The file does not exist, or holds something else.
    """
    path = _path(directory, role)
    try:
        return validate(Measured, read_json(path, METRICS_BYTES), f"{path} is damaged")
    except (Unreadable, ConfigError) as error:
        raise WorkerFailed(f"{role} took all its steps, but {path} cannot be read: {error}") from None


def forget(directory: Path, role: str) -> None:
    """Removes the file that an earlier attempt left for a process, which would otherwise be taken for a sign of life.

    Args:
        directory: The run directory.
        role: The role of the process.
    """
    _path(directory, role).unlink(missing_ok=True)


def _path(directory: Path, role: str) -> Path:
    return directory / f"process-{role}.json"


class ProcessFile:
    """The file of the current process."""

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
            values = {"phase": self.phase, "step": step, "endpoint": self.endpoint, "pid": os.getpid()}
            self._write_in_place(json.dumps(self._own | values).encode())

    def finish(self, measured: Measured) -> None:
        """Writes what the process measured."""
        values = {"phase": DONE, "pid": os.getpid(), **dataclasses.asdict(measured)}
        write_json(_path(self.directory, self.role), self._own | values)

    @property
    def _own(self) -> dict[str, object]:
        return {"role": self.role, "rank": self.rank}

    def _write_in_place(self, text: bytes) -> None:
        """Overwrites the file, since the clock may be running. Replacing it would wait milliseconds for the disk on ext4."""
        descriptor = reopen(_path(self.directory, self.role))
        try:
            os.pwrite(descriptor, text, 0)
            os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)

"""What a run leaves: a directory of plain files, readable whatever became of the run.

config.json         what was asked, every default filled in
metrics.jsonl       one line per window of steps, as training goes
process-ROLE.json   each process: its phase while it runs, its bytes when it is done
state.npz           step, params/NAME, slots/SLOT/NAME
ROLE.log            everything the process printed
result.json         the RunResult; or error.json: what stopped the run
"""

import dataclasses
import fcntl
import json
import os
import sys
import time
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from common.config import RunConfig, Scalar, Techniques
from common.errors import ERRORS, ConfigError, SamestepError
from common.evidence.parity import Parity
from common.ledger import Compiled, Exchange, Ledger
from common.strategy import TrainState

SCHEMA_VERSION = 1
DONE = "done"
"""The phase of a process that has written what it measured."""
_ERROR_BYTES = 2048


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Examples per second over the timed windows: median with a 95 % interval for it."""

    median: float
    low: float
    high: float
    windows: int


@dataclasses.dataclass(frozen=True)
class DeviceRow:
    """One device of one process, in bytes.

    Attributes:
        role: The process.
        rank: Of the process.
        device: The framework's name of the device.
        params_bytes: As in `Footprint`, like the next four.
        params_peak_bytes: See above.
        gradients_bytes: See above.
        optimizer_bytes: See above.
        source: See above.
        peak_rss_bytes: Of the whole process, its framework included.
        sent_bytes_per_step: Of the whole process, over TCP; on the process's first device.
        received_bytes_per_step: Likewise.
        measures: The strategy's own quantities.
    """

    role: str
    rank: int
    device: str
    params_bytes: int
    params_peak_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    source: str
    peak_rss_bytes: int
    sent_bytes_per_step: float
    received_bytes_per_step: float
    measures: dict[str, float]


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What happened. `status` is "trained", "not the same step" or "compiled"; every other end leaves an `error.json`."""

    schema_version: int
    status: str
    config: RunConfig
    framework: str
    strategy: str
    workload: str
    mesh: str
    dtype: str
    seed: int
    first_step: int
    steps: int
    global_batch_size: int
    optimizer: str
    losses: list[float]
    metric_name: str
    metric_value: float | None
    metric_direction: str
    examples_per_second: Throughput | None
    step_seconds_median: float | None
    startup_seconds: float
    compile_seconds: float | None
    parity: Parity
    predicted: Ledger
    exchanges: list[Exchange]
    processes: list[DeviceRow]
    cores: int
    attempt: int
    versions: dict[str, str]
    machine: dict[str, Scalar]
    git_commit: str | None
    dataset_sha256: str
    workload_digest: str
    command: str
    device_note: str
    compiled: Compiled | None = None


def write_json(path: Path, value: Any) -> None:
    """Writes a file whole or not at all.

    Args:
        path: Where.
        value: Plain values and dataclasses.
    """
    whole = path.with_name(path.name + f".{os.getpid()}.tmp")
    whole.write_text(json.dumps(value, default=dataclasses.asdict, indent=1) + "\n")
    os.replace(whole, path)


def read_config(run: Path) -> RunConfig:
    """Reads the configuration that a run directory holds.

    Raises:
        ConfigError: It holds none.
    """
    try:
        values = json.loads((run / "config.json").read_text())
        techniques = Techniques(**values.pop("techniques"))
        return RunConfig(**values, techniques=techniques)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{run} holds no readable config.json ({type(error).__name__}); experiments.run --prepare makes one."
        ) from None


def load_result(run: Path) -> RunResult:
    """Reads the result of a run, whichever schema version wrote it.

    Raises:
        ConfigError: There is none, or it is not one.
    """
    import pydantic  # here: no command needs it before it has a result to read

    try:
        values = json.loads((run / "result.json").read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{run} holds no readable result.json ({type(error).__name__}); give a finished run."
        ) from None
    written = values.get("schema_version") if isinstance(values, dict) else None
    if not (isinstance(written, int) and 1 <= written <= SCHEMA_VERSION):
        raise ConfigError(
            f"{run}/result.json is not a result: its schema_version is {written!r}, and 1 to {SCHEMA_VERSION} can be read."
        )
    for version in range(written, SCHEMA_VERSION):
        values = _UPGRADES[version](values)
    try:
        return pydantic.TypeAdapter(RunResult).validate_python(values)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{run}/result.json is not a result: {place}: {first['msg']}.") from None


_UPGRADES: dict[int, Any] = {}
"""Schema version -> a function that makes the values of the next one."""


def write_state(run: Path, state: TrainState) -> None:
    """Writes `state.npz` whole or not at all."""
    arrays: dict[str, np.ndarray] = {f"params/{name}": value for name, value in state.params.items()}
    for slot, values in state.slots.items():
        arrays |= {f"slots/{slot}/{name}": value for name, value in values.items()}
    whole = run / f"state.npz.{os.getpid()}.tmp"
    with whole.open("wb") as file:
        np.savez(file, step=np.int64(state.step), **arrays)  # pyrefly: ignore
    os.replace(whole, run / "state.npz")


def read_state(run: Path) -> TrainState:
    """Reads `state.npz`.

    Raises:
        ConfigError: The directory holds none.
    """
    try:
        # opened here: numpy leaves a damaged file open
        with (run / "state.npz").open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            params = {name.removeprefix("params/"): file[name] for name in file.files if name.startswith("params/")}
            slots: dict[str, dict[str, np.ndarray]] = {}
            for name in file.files:
                if name.startswith("slots/"):
                    _, slot, param = name.split("/", 2)
                    slots.setdefault(slot, {})[param] = file[name]
            return TrainState(int(file["step"]), params, slots)
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(
            f"--start-from {run}: no readable state.npz ({type(error).__name__}); give the directory of a finished run."
        ) from None


def reserve_error(run: Path) -> None:
    """Puts an `error.json` into a new run directory that stands until a result replaces it.

    Whatever ends the run, even a full disk or the parent's death, it then still says that the run did not end; what is
    known better is written over it in place, which needs no further room.
    """
    error = {"type": "WorkerFailed", "role": "", "message": f"the run in {run} was cut off before it ended"}
    (run / "error.json").write_text(json.dumps(error).ljust(_ERROR_BYTES))


def write_error(run: Path, role: str, error: BaseException, first: bool = True) -> None:
    """Says what stopped the run, for the parent and for whoever opens the directory later.

    Args:
        run: The run directory.
        role: The process that the error came from, or "parent".
        error: Anything; what is not ours is told by its type and its first line.
        first: Leave an error alone that a process has written already: what came first is the cause.
    """
    kind, message = type(error).__name__, str(error)
    if kind not in ERRORS:
        lines = [line.strip() for line in message.splitlines() if line.strip()] or [""]
        told = lines[:3] if lines[0].endswith(":") else lines[:1]  # TensorFlow opens with "Graph execution error:"
        kind, message = "WorkerFailed", f"{kind}: {' '.join(told)}"
    values = {"type": kind, "role": role, "message": message}
    try:
        with (run / "error.json").open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not (first and json.load(file)["role"]):
                file.seek(0)
                file.write(json.dumps(values).ljust(_ERROR_BYTES))
                file.truncate()
    except OSError as failure:
        print(f"could not write error.json: {failure}", file=sys.stderr)


def read_error(run: Path) -> tuple[str, SamestepError] | None:
    """The error that a process left in a run directory: its role, and the exception it was; None if none did."""
    try:
        values = json.loads((run / "error.json").read_text())
    except (OSError, ValueError):
        return None
    return (values["role"], ERRORS[values["type"]](values["message"])) if values["role"] else None


class ProcessRecord:
    """The file `process-ROLE.json`: a sign of life while the process runs, its measurements at the end."""

    def __init__(self, run: Path, role: str, rank: int, beat_seconds: float = 1.0) -> None:
        self.run = run
        self.role = role
        self.rank = rank
        self.phase = "start"
        self._beat_seconds = beat_seconds
        self._beaten = 0.0

    def enter(self, phase: str, step: int = 0) -> None:
        """Starts a phase: "start", "build", "first step", "train", "evaluate", "finish"."""
        self.phase = phase
        self._beaten = 0.0
        self.beat(step)

    def beat(self, step: int) -> None:
        """Shows that the process is alive; writes at most every `beat_seconds`, so that it may be called every step."""
        now = time.monotonic()
        if now - self._beaten > self._beat_seconds:
            self._beaten = now
            self._write({"phase": self.phase, "step": step, "pid": os.getpid()})

    def finish(self, values: Mapping[str, Any]) -> None:
        """Writes what the process measured."""
        self._write({"phase": DONE, "pid": os.getpid(), **values})

    def _write(self, values: Mapping[str, Any]) -> None:
        write_json(self.run / f"process-{self.role}.json", {"role": self.role, "rank": self.rank, **values})

"""What a run measured: Measured, from each process, and RunResult, composed of them."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from samestep.common.catalog import strategy_info
from samestep.common.errors import ConfigError
from samestep.common.evidence.parity import Parity
from samestep.common.flags import Scalar
from samestep.common.ledger import Compiled, Exchange, Footprint, Ledger
from samestep.common.request import RunConfig

if TYPE_CHECKING:
    import pydantic

SCHEMA_VERSION = 2
Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Examples per second over the timed windows: median with a 95 % interval for it."""

    median: float
    low: float
    high: float
    windows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """What a whole process used, the framework included.

    Attributes:
        role: The process.
        rank: Of the process.
        sent_bytes_per_step: Over TCP.
        received_bytes_per_step: Over TCP.
        peak_rss_bytes: The most memory it has had.
    """

    role: str
    rank: int
    sent_bytes_per_step: float = 0.0
    received_bytes_per_step: float = 0.0
    peak_rss_bytes: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured(Usage):
    """What one process measured; a process that only compiled a step has the defaults for what it did not train.

    Attributes:
        first_step: The number of the first step.
        window_steps: The steps of each window; the first window is the first step alone.
        window_seconds: Their seconds.
        losses: One per step.
        metric_value: On the held-out examples; None elsewhere than on rank 0.
        exchanges: What one step exchanged.
        footprints: Of every device that the process can report.
        measures: The strategy's own quantities.
        served: The processes that only serve; on rank 0.
        dataset_sha256: Of the data.
        device_note: As in `Hardware`, like the next two.
        backend: What carried the exchanges.
        emulation: What ran instead of the strategy's own API.
        compiled: The step that was compiled, if none was taken.
        startup_seconds: From the command to the first step.
        cores: The CPU cores that the process was bound to.
        attempt: Counted from 1 where something restarts the process.
        versions: Of Python and the packages that decide numbers.
    """

    first_step: int = 0
    window_steps: tuple[int, ...] = ()
    window_seconds: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    metric_value: float | None = None
    exchanges: tuple[Exchange, ...] = ()
    footprints: tuple[Footprint, ...] = ()
    measures: dict[str, float] = dataclasses.field(default_factory=dict)
    served: tuple[Usage, ...] = ()
    dataset_sha256: str
    device_note: str
    backend: str = "memory"
    emulation: str = ""
    compiled: Compiled | None = None
    startup_seconds: float = 0.0
    cores: int = 1
    attempt: int = 1
    versions: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceRow(Footprint, Usage):
    """One device of one process: its footprint, and what the whole process used.

    What a process sent and received is on the row of its first device.

    Attributes:
        measures: The strategy's own quantities.
    """

    measures: dict[str, float]


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What happened. `status` is "trained", "not the same step" or "compiled"; every other end leaves an `error.json`.

    `docs/glossary.md` has the words; bytes are bytes, seconds are seconds, and None was not measured.
    """

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
    losses: tuple[float, ...]
    metric_name: str
    metric_value: float | None
    metric_direction: str
    examples_per_second: Throughput | None
    step_seconds_median: float | None
    startup_seconds: float
    compile_seconds: float | None
    parity: Parity
    predicted: Ledger
    exchanges: tuple[Exchange, ...]
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
    backend: str
    emulation: str
    compiled: Compiled | None = None
    uncounted: tuple[str, ...] = ()


@functools.cache
def adapter(kind: type) -> "pydantic.TypeAdapter":
    """Makes what validates a dataclass; that takes longer than to use it."""
    import pydantic  # here: no command needs it before it has a result to read

    return pydantic.TypeAdapter(kind)


def validate(kind: type[Value], values: object, what: str) -> Value:
    """Makes a dataclass of plain values, every field of it checked.

    Args:
        kind: The dataclass.
        values: As JSON gives them.
        what: Where they come from, for the message.

    Raises:
        ConfigError: They are not of that kind; the message names the first field that is not.
    """
    try:
        return adapter(kind).validate_python(values)
    except ValueError as error:  # pydantic's
        first = error.errors()[0]  # pyrefly: ignore
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{what}: {place}: {first['msg']}.") from None


def load_result(directory: Path) -> RunResult:
    """Reads the result of a run of any schema version.

    Raises:
        ConfigError: There is none, or it is not one.
    """
    path = directory / "result.json"
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{directory} holds no readable result.json ({type(error).__name__}); give a finished run."
        ) from None
    written = values.get("schema_version") if isinstance(values, dict) else None
    if not (type(written) is int and 1 <= written <= SCHEMA_VERSION):
        raise ConfigError(
            f"{path} is not a result: its schema_version is {written!r}, and 1 to {SCHEMA_VERSION} can be read."
        )
    try:
        for version in range(written, SCHEMA_VERSION):
            _UPGRADES[version](values)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not a result: it lacks {error}.") from None
    return validate(RunResult, values, f"{path} is not a result")


def _from_version_1(values: dict[str, dict[str, dict[str, object]]]) -> None:
    """Version 1 guessed the backend from the names of devices, and had the emulation in the note on devices only."""
    info = strategy_info(str(values["framework"]), str(values["strategy"]))
    on_gpus = any("cuda" in str(row["device"]) for row in values["processes"])
    is_emulated = info.emulation and str(values["device_note"]).startswith(info.emulation)
    new: dict[str, object] = {
        "schema_version": 2,
        "backend": "nccl" if on_gpus and info.backend == "gloo" else info.backend,
        "emulation": info.emulation if is_emulated else "",
    }
    values.update(new)  # pyrefly: ignore
    techniques = values["config"]["techniques"]
    techniques["accumulation_steps"] = techniques.pop("micro_batches")
    for footprint in values["predicted"]["footprints"]:
        footprint["source"] = "predicted"  # pyrefly: ignore


_UPGRADES: Mapping[int, Callable[..., None]] = {1: _from_version_1}
"""Schema version -> what turns its values into those of the next one."""

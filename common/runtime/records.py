"""The result of a run, composed of the measurements of its processes."""

import dataclasses
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.flags import Scalar
from samestep.common.judging.parity import Parity
from samestep.common.ledger import Compiled, Exchange, Footprint, Ledger, Send
from samestep.common.request import ORACLE, RunConfig
from samestep.common.runtime.integrity import check_losses, check_request, check_result
from samestep.common.runtime.measured import Conditions, Saves, Usage, validate
from samestep.common.runtime.step_parts import StepParts
from samestep.common.steps.log import METRICS_BYTES

SCHEMA_VERSION = 4
"""The schema of results; it changes when a field gets another meaning."""


@dataclasses.dataclass(frozen=True)
class Throughput:
    """Examples per second over the timed windows of one run.

    The spread of the windows is not an interval for what another run will measure, since the placement of processes and the
    other work of the machine are the same in all windows of a run.

    Attributes:
        median: The median of the windows.
        slowest_window: The slowest window; None, like the next one, if it was not recorded.
        fastest_window: The fastest window.
        windows: The number of windows.
    """

    median: float
    slowest_window: float | None
    fastest_window: float | None
    windows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceRow(Footprint, Usage):
    """One device of one process: its footprint, and what the whole process used.

    The bytes that a process sent and received are in the row of its first device, like its busy and idle seconds.

    Attributes:
        measures: The strategy's own quantities.
        sends: What the process sent in the observed step, in order.
    """

    measures: dict[str, float]
    sends: tuple[Send, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostBytes:
    """The bytes of a step that the processes of one host send and receive over TCP.

    Attributes:
        host: Its name.
        within_bytes: The bytes from one of its processes to another one.
        sent_bytes: The bytes to other hosts.
        received_bytes: The bytes from other hosts.
        predicted_within_bytes: The prediction of `within_bytes`; None, like the next two, without a cost model for it.
        predicted_sent_bytes: The prediction of `sent_bytes`.
        predicted_received_bytes: The prediction of `received_bytes`.
    """

    host: str
    within_bytes: float
    sent_bytes: float
    received_bytes: float
    predicted_within_bytes: float | None = None
    predicted_sent_bytes: float | None = None
    predicted_received_bytes: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """Everything that affects the numbers of a run, and the machine, or `hosts` if an engine started the processes."""

    schema_version: int
    config: RunConfig
    framework: str
    strategy: str
    workload: str
    mesh: str
    dtype: str
    seed: int
    global_batch_size: int
    optimizer: str
    cores: int
    attempt: int
    versions: dict[str, str]
    machine: dict[str, Scalar]
    hosts: tuple[dict[str, str], ...] = ()
    git_commit: str | None
    dataset_sha256: str
    workload_digest: str
    command: str
    device_note: str
    backend: str
    emulation: str

    @property
    def name(self) -> str:
        """The strategy with its framework, such as `torch:ddp`."""
        return f"{self.framework}:{self.strategy}"

    @property
    def is_oracle(self) -> bool:
        """Returns whether the oracle took the steps."""
        return self.name == ORACLE

    @property
    def arithmetic(self) -> str:
        """The dtype in which the forward and backward passes were computed."""
        return self.config.techniques.arithmetic(self.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCurve:
    """The steps of a run, from its log, and the verdict on them. `state_sha256` is "" unless it was requested."""

    first_step: int
    steps: int
    losses: tuple[float, ...]
    metric_name: str
    metric_value: float | None
    metric_direction: str
    parity: Parity
    state_sha256: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunLedger:
    """The bytes of a step: predicted, and measured per device, and per host if there are several; or found by a compiler."""

    predicted: Ledger
    exchanges: tuple[Exchange, ...]
    processes: list[DeviceRow]
    uncounted: tuple[str, ...] = ()
    by_host: tuple[HostBytes, ...] = ()
    compiled: Compiled | None = None

    @property
    def measured(self) -> Ledger:
        """The measured ledger, in the form of `predicted`: every device, and the sends of the first one."""
        sends = self.processes[0].sends if self.processes else ()
        return Ledger(tuple(self.processes), sends, sum(row.sent_bytes_per_step for row in self.processes))

    @property
    def sent_bytes(self) -> float:
        """The bytes that all processes together sent over TCP in a step."""
        return self.measured.sent_bytes_per_step

    @property
    def state_bytes(self) -> int | None:
        """The bytes of state on the device that holds the most; None without devices."""
        return self.measured.state_bytes

    @property
    def activations_bytes(self) -> int | None:
        """The bytes of activations on the device that keeps the most; None if they were not measured."""
        return self.measured.activations_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSpeed:
    """The speed of a run, its conditions, and how the median step's seconds are spent, unless `no_parts` says why not."""

    examples_per_second: Throughput | None
    step_seconds_median: float | None
    startup_seconds: float
    compile_seconds: float | None
    conditions: Conditions = dataclasses.field(default_factory=Conditions)
    step_times: dict[int, int] = dataclasses.field(default_factory=dict)
    step_parts: StepParts | None = None
    no_parts: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunAttempts:
    """How an interrupted run was continued, and what it saved.

    Attributes:
        resumed_at: The step of the checkpoint from which the last attempt continued; None if it took every step.
        lost_steps: How many steps were repeated, over all attempts.
        saves: The checkpoints of the last attempt.
    """

    resumed_at: int | None = None
    lost_steps: int = 0
    saves: Saves = dataclasses.field(default_factory=Saves)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunResult(RunAttempts, RunSpeed, RunLedger, RunCurve, RunIdentity):
    """The result of a run. `status` is "trained", "not the same step" or "compiled"; every other end leaves an `error.json`.

    It has the fields of its five parts, in JSON as well. `docs/glossary.md` defines the terms. Units are bytes and seconds, and
    None means not measured.
    """

    status: str

    @property
    def is_trained(self) -> bool:
        """Returns whether a framework took the steps, i.e. the oracle did not, and the step was not only compiled."""
        return not self.is_oracle and self.compiled is None


def load_result(directory: Path) -> RunResult:
    """Reads the result of a run, if it is complete and the files next to it belong to the same run.

    Raises:
        ConfigError: There is no result, it is invalid, or the files are of another run.
    """
    path = directory / "result.json"
    try:
        values = read_json(path, METRICS_BYTES)
    except Unreadable as error:
        raise ConfigError(f"{directory} holds no readable result.json: {error}; give a finished run.") from None
    written = values.get("schema_version") if isinstance(values, dict) else None
    if type(written) is int and 1 <= written < SCHEMA_VERSION:
        raise ConfigError(f"{path} was written by an older samestep (schema_version {written}); run it again.")
    if type(written) is not int or written != SCHEMA_VERSION:
        raise ConfigError(f"{path} is not a result: its schema_version is {written!r}; {SCHEMA_VERSION} can be read.")
    assert isinstance(values, dict)  # it has a version
    check_request(directory, values.get("config"))  # both as they were written
    result = validate(RunResult, values, f"{path} is not a result")
    check_result(path, values, result)
    check_losses(directory, result.first_step, result.losses)
    return result

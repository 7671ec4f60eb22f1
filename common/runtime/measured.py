"""The measurements of one process of a run, the conditions under which it ran, and how they are read from JSON."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from samestep.common.errors import ConfigError
from samestep.common.ledger import Compiled, Footprint, Send
from samestep.common.runtime.step_parts import StepParts

if TYPE_CHECKING:
    import pydantic

Value = TypeVar("Value")
LEAST_CORE_SECONDS = 1.0
"""The least core time of which shares are computed. The kernel counts ticks of a few milliseconds; with some hundred ticks, a
share is accurate to a few percent."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watched:
    """Disturbances that one process saw, from the start of its first timed window to the end of its last.

    Attributes:
        order_sha256: The SHA-256 digest of the first batches' indices into the data.
        compilations: How many functions it compiled or traced.
        core_seconds: The seconds that passed, summed over the run's cores; 0, like the next two, if it did not watch them.
        busy_core_seconds: The part of these spent in processes, of this run and others.
        stolen_core_seconds: The part of these that other virtual machines took.
    """

    order_sha256: str = ""
    compilations: int = 0
    core_seconds: float = 0.0
    busy_core_seconds: float = 0.0
    stolen_core_seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions under which a run was timed, in addition to its request; each is None or "" if it was not watched.

    Attributes:
        num_parameters: The number of parameters of the model.
        order_sha256: The SHA-256 digest of the first batches' indices into the data.
        compilations: How many functions its processes compiled or traced while the clock ran.
        others_share: The share of its cores' time that other processes took while the clock ran.
        stolen_share: The share that other virtual machines took.
    """

    num_parameters: int | None = None
    order_sha256: str = ""
    compilations: int = 0
    others_share: float | None = None
    stolen_share: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """The resources that a whole process used, including its framework.

    Attributes:
        role: The process.
        rank: The rank of the process.
        sent_bytes_per_step: The bytes sent over TCP.
        received_bytes_per_step: The bytes received over TCP.
        sent_away_bytes_per_step: The part of the sent bytes that goes to other hosts.
        received_away_bytes_per_step: The part of the received bytes that comes from other hosts.
        peak_rss_bytes: The most resident memory it has had.
        cpu_seconds: The time that its threads were on a core, from the first timed window to the end of the last.
        busy_seconds: The processor time of its threads in the observed step. Observing adds to it. None, like the next one, for
            devices other than CPUs, whose time belongs to no process.
        idle_seconds: The rest of that step on its devices, in which it waited for others or for a core.
    """

    role: str
    rank: int
    sent_bytes_per_step: float = 0.0
    received_bytes_per_step: float = 0.0
    sent_away_bytes_per_step: float = 0.0
    received_away_bytes_per_step: float = 0.0
    peak_rss_bytes: int = 0
    cpu_seconds: float = 0.0
    busy_seconds: float | None = None
    idle_seconds: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saves:
    """The checkpoints that one attempt at a run saved or failed to save.

    Attributes:
        steps: The steps of the checkpoints that are on the disk.
        stall_seconds: How long training waited for each checkpoint that was begun.
        write_seconds: How long a thread then took, during training, to write each checkpoint that is on the disk.
        skipped: How many were due while the one before was still being written.
        failed: Why each of the others is not on the disk.
    """

    steps: tuple[int, ...] = ()
    stall_seconds: tuple[float, ...] = ()
    write_seconds: tuple[float, ...] = ()
    skipped: int = 0
    failed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured(Usage):
    """The measurements of one process. If it only compiled a step, everything about training has its default.

    Attributes:
        first_step: The number of the first step.
        window_steps: The steps of each window; the first window is the first step alone, or with a warm-up of
            compression all steps up to the first that is compressed.
        window_seconds: Their seconds.
        step_times: Counts of the seconds of the steps after the first one, as in `judging.percentiles`; empty if the call that
            takes a step does not wait for it.
        losses: One loss for each step, on rank 0.
        metric_value: The metric on the held-out examples; None except on rank 0.
        sends: What the process sent in the observed step, in order.
        footprints: The footprints of every device that the process can report.
        measures: The strategy's own quantities.
        served: The usage of the processes that only serve, on rank 0.
        dataset_sha256: The SHA-256 digest of the data.
        device_note: As in `Hardware`, like the next two fields.
        backend: What carried the exchanges.
        emulation: What ran instead of the strategy's own API.
        compiled: The step that was compiled, if none was taken.
        startup_seconds: The time from the start of the run to the start of its first step. It includes the import of the
            framework, unless a comparison imported it before its first row.
        cores: The CPU cores that the process was bound to.
        attempt: The number of the attempt, from 1.
        resumed_at: The step of the checkpoint from which this attempt continued; None if it began where the run begins.
        saves: The checkpoints of this attempt.
        versions: The versions of Python and the packages that decide numbers.
        watched: The disturbances of the timed windows.
        step_parts: How the seconds of a step of this process are spent; None if `no_parts` says why.
        no_parts: Why there are no parts, in words.
    """

    first_step: int = 0
    window_steps: tuple[int, ...] = ()
    window_seconds: tuple[float, ...] = ()
    step_times: dict[int, int] = dataclasses.field(default_factory=dict)
    losses: tuple[float, ...] = ()
    metric_value: float | None = None
    sends: tuple[Send, ...] = ()
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
    resumed_at: int | None = None
    saves: Saves = dataclasses.field(default_factory=Saves)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    watched: Watched = dataclasses.field(default_factory=Watched)
    step_parts: StepParts | None = None
    no_parts: str = ""


@functools.cache
def adapter(kind: type) -> "pydantic.TypeAdapter":
    """Makes the validator of a dataclass, once, since that takes longer than using it."""
    import pydantic  # here: no command needs it before it has a result to read

    return pydantic.TypeAdapter(kind)


def validate(kind: type[Value], values: object, what: str) -> Value:
    """Makes a dataclass from plain values, checking every field.

    Args:
        kind: The dataclass.
        values: The plain values, as read from JSON.
        what: Where they come from, for the message.

    Raises:
        ConfigError: A field is missing or wrong; the message names the first one.
    """
    try:
        return adapter(kind).validate_python(values)
    except ValueError as error:  # pydantic's
        first = error.errors()[0]  # pyrefly: ignore
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{what}: {place}: {first['msg']}.") from None


def conditions(num_parameters: int, watched: Sequence[Watched], cpu_seconds: float) -> Conditions:
    """Combines what the processes of a run watched.

    Args:
        num_parameters: The number of parameters of the model.
        watched: What each process watched, rank 0 first, which also watched the cores.
        cpu_seconds: The seconds that all processes of the run together were on a core.
    """
    first = watched[0]
    spent = {"others_share": first.busy_core_seconds - cpu_seconds, "stolen_share": first.stolen_core_seconds}
    if first.core_seconds < LEAST_CORE_SECONDS:
        spent = {}
    return Conditions(
        num_parameters=num_parameters,
        order_sha256=first.order_sha256,
        compilations=sum(each.compilations for each in watched),
        **{name: max(0.0, seconds) / first.core_seconds for name, seconds in spent.items()},
    )

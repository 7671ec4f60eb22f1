"""The cells of the table of faults: which fault befalls which process of which row, when, and what became of it."""

import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path

from samestep.common import cell as configuration
from samestep.common.catalog import catalogue, strategy_info
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import ProcessSpec
from tests.cells import takes, usual
from tests.chaos import worker

STORE = Path(__file__).parents[2] / "build" / "faults"
TIMEOUT_SECONDS, IMPORTING_SECONDS = 6.0, 20.0
"""Of a run; and of one whose workers import a package of the strategy's own, which takes seconds of a core."""
SLACK_SECONDS = 3.0
"""Within the timeout and so long after it, the user has to know."""
VARIANTS = (
    "torch:rpc_parameter_server+consistency=async",
    "tf:dtensor+clients=2",
    "tf:parameter_server+consistency=async",
)
"""Rows that have other processes, or processes that wait for other things, under an option."""
PROCESS_FAULTS = ("SIGKILL", "SIGSTOP")
"""Of every process, at every moment."""
COMMAND_FAULTS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL")
COMMAND = "command"
IN_TRAINING = ("cut_connection", "full_disk", "fork_server_killed", "short_memory", "nan_gradient")
BEFORE = ("mismatched_shapes", "corrupted_state", "rank_twice")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One fault in one run.

    Attributes:
        row: A strategy with its options.
        fault: A signal, or a function of `worker`.
        role: The process that it befalls; the command itself, or a process of the run.
        moment: One of `worker.MOMENTS`; "" for what is there before anything starts.
    """

    row: str
    fault: str
    role: str
    moment: str

    @property
    def stored(self) -> Path:
        """Where its outcome is kept."""
        return STORE / ("-".join(filter(None, dataclasses.astuple(self))).replace(":", "-").replace(" ", "-") + ".json")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of it.

    Attributes:
        seconds: From the fault to the end of the command; None where nothing is to be detected.
        is_right: Whether the culprit, or the cause, was named; or the run went on where it should.
        orphans: How many processes were left.
        said: What the user read.
        excuse: What is permitted where it is not as wanted; "" where nothing is.
        timeout_seconds: Of the run.
    """

    seconds: float | None
    is_right: bool
    orphans: int
    said: str
    excuse: str = ""
    timeout_seconds: float = TIMEOUT_SECONDS

    @property
    def is_good(self) -> bool:
        """Whether it is as wanted."""
        in_time = self.seconds is None or self.seconds <= self.timeout_seconds + SLACK_SECONDS or bool(self.excuse)
        return self.is_right and in_time and self.orphans == 0


def rows() -> list[str]:
    """Every row of both catalogues, and the variants."""
    plain = [f"{framework}:{row.name}" for framework, row in catalogue() if framework != "numpy"]
    return [*plain, *VARIANTS]


def request(row: str, **fields: object) -> RunConfig:
    """The run of a row that something befalls."""
    base = RunConfig(batch_size=48, steps=20, parity=False)
    config = configuration.Cell.parse(row).apply_to(base)
    info = strategy_info(config.framework, config.strategy)
    config = dataclasses.replace(config, workload=usual(info))
    seconds = IMPORTING_SECONDS if info.package else TIMEOUT_SECONDS
    fields = {"devices": 2 if info.axes else 1, "timeout_seconds": seconds, "keep_state": True, **fields}
    return dataclasses.replace(config, **fields)


@functools.cache
def processes(row: str) -> tuple[ProcessSpec, ...]:
    """The processes of a row's run."""
    run = parse(request(row))
    return tuple(run.strategy.topology(run))


def reads_alone(row: str) -> bool:
    """Whether one process alone decides on shapes: the others serve it, or there are none."""
    return sum(not spec.serves for spec in processes(row)) == 1


def cells(row: str) -> Iterator[Cell]:
    """Every fault of a row."""
    specs = processes(row)
    for spec in specs:
        for fault in PROCESS_FAULTS:
            yield from (Cell(row, fault, spec.role, moment) for moment in worker.MOMENTS)
    several = len(specs) > 1
    last = [spec.role for spec in specs if not spec.serves][-1]
    config = configuration.Cell.parse(row)
    absent = {"cut_connection"} if not several else set()
    absent |= set() if takes(config.info, "mlp") else {"nan_gradient"}  # token ids cannot hold a NaN
    for fault in IN_TRAINING:
        if fault not in absent:
            yield Cell(row, fault, last if fault in ("cut_connection", "short_memory") else specs[0].role, "train")
    for fault in BEFORE:
        yield Cell(row, fault, last, "")
    for fault in (*COMMAND_FAULTS, "gap"):
        yield Cell(row, fault, COMMAND, "train")


def read(cell: Cell) -> Outcome:
    """The outcome that a cell left."""
    return Outcome(**json.loads(cell.stored.read_text()))

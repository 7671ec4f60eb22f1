"""The contracts: what a strategy is in the catalogue (StrategyInfo) and inside a process (Program)."""

import dataclasses
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from common.batch import Batch
from common.config import FRAMEWORKS, RunConfig, Scalar
from common.errors import Unavailable, unknown
from common.ledger import Exchange, Footprint, Ledger

if TYPE_CHECKING:
    from common.runtime.topology import ProcessSpec
    from common.workload.table import Workload


def _needs_nothing(workload: "Workload", config: RunConfig) -> None:
    pass


def _always(config: RunConfig) -> bool:
    return True


def _none(options: Mapping[str, Scalar]) -> int:
    return 0


@dataclasses.dataclass(frozen=True, eq=False)
class TrainState:
    """A training run between two steps: whole, unsharded, in neutral names and layout.

    Attributes:
        step: How many steps have been taken.
        params: Parameter name -> array.
        slots: Slot name (as in `OptimizerSpec.slots`) -> parameter name -> array.
    """

    step: int
    params: dict[str, np.ndarray]
    slots: dict[str, dict[str, np.ndarray]]


class Program(Protocol):
    """A model in training, seen from one process.

    Every method is collective: all processes call it in the same order. What rank 0 returns counts; elsewhere it may
    be anything.

    Attributes:
        device_note: What its devices really are, in words.
    """

    device_note: str

    def step(self, batch: Batch) -> None:
        """Takes one optimizer step on a GLOBAL batch; sends nothing for reporting's sake."""

    def losses(self) -> list[float]:
        """The GLOBAL mean loss of every step since the last call; reduced once, outside the timed part."""

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """The logits [global_batch_size, ...] of a full global batch of inputs."""

    def state(self) -> TrainState:
        """Step, parameters and optimizer slots: whole, unsharded, neutral names and layout."""

    def restore(self, state: TrainState) -> None:
        """The inverse of `state`, from any strategy of any framework; every process gets the whole state."""

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """Takes one more step, untimed and under observation; returns what it exchanged."""

    def footprint(self) -> tuple[Footprint, ...]:
        """One row per device this process can answer for (a chief answers for its servers)."""

    def measures(self) -> Mapping[str, float]:
        """The strategy's own quantities, as declared in its row."""

    def sync(self) -> None:
        """Returns when everything asked for so far is done; timing windows start and end here."""

    def close(self) -> None:
        """Leaves the group of processes."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """Whether a strategy splits something.

    Attributes:
        answer: "yes", "no", "partial" or "flexible".
        how: One clause.
    """

    answer: str
    how: str


@dataclasses.dataclass(frozen=True)
class Measure:
    """A quantity of a strategy's own: name, unit, and one sentence on what it says."""

    name: str
    unit: str
    meaning: str


@dataclasses.dataclass(frozen=True)
class Textbook:
    """What the textbooks say of a row among the rows of its family: its places, of which 1 has the most.

    Attributes:
        family: The rows that are ranked among each other.
        speed: Its place by examples per second.
        memory: Its place by memory per device.
        sent: Its place by bytes on the wire; rows with one place send the same.
    """

    family: str
    speed: int
    memory: int
    sent: int


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """The options of a strategy that has none."""


@dataclasses.dataclass(frozen=True)
class StrategyInfo:
    """One catalogue row: everything known about a strategy without importing its framework.

    Attributes:
        name: The user's spelling, and the name of its file.
        summary: One sentence: what it does.
        goal: What it is for.
        data_split: Whether the batch is split.
        model_split: Whether the model is split.
        synchronous: Whether every step waits for every device, and parity is promised.
        hardware: What it is meant for.
        axes: The mesh axes it understands; the first takes `--devices`. Empty: one device only.
        topology: The processes that a run needs.
        law: What a step costs: memory, exchanges, bytes on the wire.
        backend: What carries its exchanges on a CPU: "memory", "gloo" or "grpc".
        reference: The API it shows.
        status: What the maintainers of that API say of it.
        twin: Its counterpart in the other framework, as framework:strategy, or "".
        options: A frozen dataclass; its fields are the row's own options.
        measures: The quantities that `Program.measures` returns.
        dtypes: The dtypes it can train in.
        emulated: What runs instead of the real thing, in words; "" if it is the real thing.
        emulates: Whether an emulated row still is with these options.
        waits: Whether a synchronous row still is with these options.
        compiled_cores: For how many cores a step is only compiled with these options, by the `compile_step` that the
            row's file then exports; 0: it is run.
        needs: Raises a ConfigError for a checked configuration or a model that it cannot train, and Unavailable for
            what is missing, as far as that can be told without importing the framework.
        textbook: Its places in the textbooks' ranking of its family, if there is one.
        package: A package that it needs beside its framework; the extra that installs it has the same name.
    """

    name: str
    summary: str
    goal: str
    data_split: Answer
    model_split: Answer
    synchronous: bool
    hardware: str
    axes: tuple[str, ...]
    topology: "Callable[[RunConfig], list[ProcessSpec]]"
    law: "Callable[[Workload, RunConfig, str], Ledger]"
    backend: str
    reference: str
    status: str
    twin: str
    options: type = NoOptions
    measures: tuple[Measure, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "float64")
    emulated: str = ""
    emulates: Callable[[RunConfig], bool] = _always
    waits: Callable[[RunConfig], bool] = _always
    compiled_cores: Callable[[Mapping[str, Scalar]], int] = _none
    needs: "Callable[[Workload, RunConfig], None]" = _needs_nothing
    textbook: Textbook | None = None
    package: str = ""

    def emulation(self, config: RunConfig) -> str:
        """What a run so configured runs instead of the real thing, in words; "" if it is the real thing."""
        return self.emulated if self.emulates(config) else ""


@dataclasses.dataclass(frozen=True)
class FrameworkInfo:
    """What a framework's catalogue says of the framework itself.

    Attributes:
        module: The module to look for; found without importing it.
        extra: The extra of this package that installs it, or "" if it always comes along.
        environment: What has to be set before its import.
        rows: Its strategies.
        preload: The modules that a warm server imports before it forks.
    """

    module: str
    extra: str
    environment: Mapping[str, str]
    rows: tuple[StrategyInfo, ...]
    preload: tuple[str, ...]


def framework_info(framework: str) -> FrameworkInfo:
    """The catalogue of a framework, read without importing the framework.

    Raises:
        ConfigError: There is no such framework.
    """
    if framework not in FRAMEWORKS:
        raise unknown("framework", framework, FRAMEWORKS)
    return importlib.import_module(FRAMEWORKS[framework] + ".catalog").FRAMEWORK


def strategy_info(framework: str, strategy: str) -> StrategyInfo:
    """The catalogue row of a strategy.

    Raises:
        ConfigError: There is no such row; the message says which framework has it, if one does.
    """
    rows = {row.name: row for row in framework_info(framework).rows}
    if strategy in rows:
        return rows[strategy]
    owners = [other for other in FRAMEWORKS if strategy in {row.name for row in framework_info(other).rows}]
    hint = f"It is a strategy of {owners[0]}: --framework {owners[0]}." if owners else ""
    raise unknown(f"{framework} strategy", strategy, rows, hint)


def require(framework: str) -> str:
    """Makes sure that a framework is installed.

    Returns:
        The name of its module.

    Raises:
        Unavailable: It is not; the message has the install line.
    """
    info = framework_info(framework)
    _require(info.module, info.extra)
    return info.module


def require_row(framework: str, strategy: str) -> None:
    """Makes sure that a framework is installed, and what else a row of it needs.

    Raises:
        ConfigError: There is no such row.
        Unavailable: One of them is not; the message has the install line.
    """
    require(framework)
    package = strategy_info(framework, strategy).package
    if package:
        _require(package, package)


def _require(module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise Unavailable(f"{module} is not installed: pip install 'samestep[{extra}]'")

"""A strategy in the catalogue (StrategyInfo), and the checked request that names it (Run)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Literal, TypeVar

from samestep.common.features import Features
from samestep.common.ledger import Ledger
from samestep.common.mesh import Mesh
from samestep.common.request import DTYPES, FRAMEWORKS, StrategyOptions
from samestep.common.techniques import Techniques
from samestep.common.techniques.schedule.statement import at_step
from samestep.common.workload.optimizers.spec import OptimizerSpec
from samestep.common.workload.workload import Workload


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer to the question whether a strategy splits something.

    Attributes:
        answer: The answer in one word.
        how: How, in one clause.
    """

    answer: Literal["yes", "no", "partial", "flexible"]
    how: str


@dataclasses.dataclass(frozen=True)
class Measure:
    """A quantity that only one strategy reports: name, unit, and one sentence on its meaning."""

    name: str
    unit: str
    meaning: str


Options = TypeVar("Options", bound=StrategyOptions, covariant=True)
"""A strategy's own dataclass of options."""


@dataclasses.dataclass(frozen=True)
class ProcessSpec:
    """One process of a run.

    Attributes:
        role: Its name in logs and messages, such as "rank-0" or "ps-1".
        environment: Its identity and the others' addresses, with placeholders for hosts and ports.
        serves: Whether it only serves: it never finishes on its own, and is stopped when the others are done.
        expendable: Whether the run continues if it dies, as long as another such process is left.
    """

    role: str
    environment: Mapping[str, str]
    serves: bool = False
    expendable: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(Features, Generic[Options]):
    """A request that was checked: everything that affects the numbers of a run, and nothing else. `common.run.parse` makes it.

    Attributes:
        framework: A key of FRAMEWORKS.
        strategy: Its row of the catalogue.
        workload: What is trained.
        optimizer: The optimizer, with its learning rate.
        mesh: The devices.
        batch_size: The GLOBAL batch size.
        steps: The step up to which it trains, counted from zero.
        dtype: "float32" or "float64".
        seed: The seed of the initial weights and of the order of the examples.
        threads: The number of threads of each device.
        options: The strategy's own options.
        techniques: How a step is taken, under any strategy.
        weights: One of KEPT_WEIGHTS: the type of everything but master weights and optimizer state, as in Megatron-LM; only for
            predictions.
    """

    framework: str
    strategy: "StrategyInfo"
    workload: Workload
    optimizer: OptimizerSpec
    mesh: Mesh
    batch_size: int
    steps: int
    dtype: str
    seed: int
    threads: int
    options: Options
    techniques: Techniques
    weights: str | None = None

    @property
    def name(self) -> str:
        """The strategy as it is spelled in cells: `torch:ddp`."""
        return f"{self.framework}:{self.strategy.name}"

    @property
    def module(self) -> str:
        """The module of the strategy."""
        return f"{FRAMEWORKS[self.framework]}.strategies.{self.strategy.name}"

    @property
    def num_devices(self) -> int:
        """The size of the mesh."""
        return self.mesh.size

    @property
    def item_bytes(self) -> int:
        """The bytes of one number of parameters, activations and gradients."""
        return DTYPES[self.dtype] if self.weights is None else 2

    @property
    def product_bytes(self) -> int:
        """The bytes of one number in the factors of products, and in parameters that are gathered for them."""
        return self.item_bytes if self.techniques.gathered(self.dtype) == self.dtype else 2

    @property
    def arithmetic(self) -> str:
        """The dtype of the forward and backward passes: that of mixed precision, or the run's."""
        return self.techniques.arithmetic(self.dtype)

    @property
    def passes(self) -> int:
        """The number of forward and backward passes of a step on each shard."""
        return self.techniques.passes_of(self.mesh.replicas)

    @property
    def asked(self) -> StrategyOptions:
        """The options that every strategy has."""
        return self.options

    @property
    def microbatches(self) -> int:
        """The number of micro-batches of each shard: those of a pipeline, times the accumulation steps."""
        return self.passes * self.options.microbatches

    @property
    def examples_per_pass(self) -> int:
        """The examples of a shard that one of its passes takes."""
        return self.batch_size // (self.mesh.replicas * self.passes)

    def optimizer_at(self, step: int) -> OptimizerSpec:
        """Returns the optimizer with the learning rate of a step, counted from 1."""
        return at_step(self.optimizer, self.techniques, step)

    def described(self) -> dict[str, object]:
        """Returns every field as plain values; runs with equal descriptions compute the same numbers in the same way."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name, value in plain.items():
            if dataclasses.is_dataclass(value) and not isinstance(value, type | StrategyInfo | Workload):
                plain[name] = dataclasses.asdict(value)
        return plain | {"strategy": self.strategy.name, "workload": self.workload.digest, "mesh": str(self.mesh)}


Cost = Callable[..., Ledger]
"""The cost of a step, given the run, the backend of its exchanges and, under a strategy with the axis `pipe`, a place along it,
whose devices send what the ledger says."""


@dataclasses.dataclass(frozen=True)
class Formula:
    """A textbook's formula for a quantity of the ledger.

    Attributes:
        quantity: "state" or "activations" (bytes of the device that holds most), "sent" (bytes of all processes) or "idle"
            (share of a step).
        value: The value of the formula for the run.
        text: The formula, in the letters of `docs/predicting.md`.
        source: The publication.
    """

    quantity: str
    value: float
    text: str
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StrategyInfo:
    """One catalogue row: everything known about a strategy without importing its framework.

    Attributes:
        name: The user's spelling, and the name of its file.
        summary: One sentence: what it does.
        goal: What it is for.
        data_split: Whether the batch is split.
        model_split: Whether the model is split.
        hardware: The hardware that it is meant for.
        axes: The mesh axes that it supports; the first takes `--devices`. If empty, it runs on one device only.
        topology: The processes that a run needs.
        cost: The cost of a step: memory, exchanges, bytes on the wire.
        cost_as_measured: The cost of the observed step, given also what `Program.measures` returned in each process, if what a
            step sends and keeps depends on the data; None if it does not.
        routes: (process, process) -> the bytes that the first sends to the second in a step; empty if none are predicted.
        textbook: The textbooks' formulas for state, bytes sent and idle time.
        backend: The backend of its exchanges between CPUs: "memory", "gloo", "grpc" or "tensorpipe".
        reference: The API that it demonstrates.
        status: What the maintainers of that API say about it.
        counterpart: Its counterpart in the other framework, as framework:strategy, or ""; the relation is symmetric.
        options: A frozen dataclass; its fields are the strategy's own options.
        measures: The quantities that `Program.measures` returns.
        dtypes: The dtypes it can train in.
        cuts_parameters: Whether devices update parts of parameters although no axis of its mesh cuts them.
        scales_loss: Whether it scales the loss if gradients in two bytes would vanish.
        emulation: What runs instead if its hardware is missing, in words; "" if the strategy runs anywhere.
        synchronous: Whether every step waits for every device under these options, so parity is promised.
        varies: Why two runs of one command may differ in their bits with these options on CPU cores; "" if they do not.
        compiled_cores: The number of cores for which its file's `compile_step` only compiles a step; 0 if it is run.
        refuses: Technique, or feature of a model -> why the strategy cannot take it.
        needs: Raises a ConfigError for a run that the strategy cannot train.
        available: Raises Unavailable if this machine lacks something for the run other than packages.
        package: A package that it needs in addition to its framework; the extra that installs it has the same name.
        danger_of_open_ports: Who can connect to its processes if there is no private network, and what they can then do beyond
            disturbing a run, as a clause; `{ports}` stands for the known ports.
    """

    name: str
    summary: str
    goal: str
    data_split: Answer
    model_split: Answer
    hardware: str
    axes: tuple[str, ...]
    topology: Callable[[Run], list[ProcessSpec]]
    cost: Cost
    backend: str
    reference: str
    status: str
    counterpart: str = ""
    options: type[StrategyOptions] = StrategyOptions
    cost_as_measured: Callable[[Run, str, Sequence[Mapping[str, float]]], Ledger] | None = None
    routes: Callable[[Run, Ledger, str], Mapping[tuple[int, int], float]] = lambda run, ledger, backend: {}
    textbook: Callable[[Run], tuple[Formula, ...]] = lambda run: ()
    measures: tuple[Measure, ...] = ()
    dtypes: tuple[str, ...] = tuple(DTYPES)
    cuts_parameters: bool = False
    scales_loss: bool = False
    emulation: str = ""
    synchronous: Callable[..., bool] = lambda options: True
    varies: Callable[..., str] = lambda options: ""
    compiled_cores: Callable[..., int] = lambda options: 0
    refuses: Mapping[str, str] = dataclasses.field(default_factory=dict)
    needs: Callable[[Run], None] = lambda run: None
    available: Callable[[Run], None] = lambda run: None
    package: str = ""
    danger_of_open_ports: str = ""

"""What a strategy is in the catalogue (StrategyInfo), and the checked request that names it (Run)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Literal, TypeVar

from samestep.common.features import Features
from samestep.common.ledger import Ledger
from samestep.common.mesh import Mesh
from samestep.common.request import DTYPES, FRAMEWORKS
from samestep.common.techniques import Techniques
from samestep.common.techniques.schedule.statement import at_step
from samestep.common.workload.optimizers.spec import OptimizerSpec
from samestep.common.workload.workload import Workload


@dataclasses.dataclass(frozen=True)
class Answer:
    """Whether a strategy splits something.

    Attributes:
        answer: In a word.
        how: One clause.
    """

    answer: Literal["yes", "no", "partial", "flexible"]
    how: str


@dataclasses.dataclass(frozen=True)
class Measure:
    """A quantity of a strategy's own: name, unit, and one sentence on what it says."""

    name: str
    unit: str
    meaning: str


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """The options of a strategy that has none."""


Options = TypeVar("Options")
"""A strategy's own dataclass of options."""


@dataclasses.dataclass(frozen=True)
class ProcessSpec:
    """One process of a run.

    Attributes:
        role: Its name in logs and messages, such as "rank-0" or "ps-1".
        environment: Its identity and the others' addresses, with placeholders for hosts and ports.
        serves: Whether it never finishes by itself: it is stopped when the others are done.
        expendable: Whether the run goes on if it dies, as long as another such process is left.
    """

    role: str
    environment: Mapping[str, str]
    serves: bool = False
    expendable: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(Features, Generic[Options]):
    """A request that was checked: everything that decides the numbers of a run, and nothing else. `common.run.parse` makes it.

    Attributes:
        framework: A key of FRAMEWORKS.
        strategy: Its row of the catalogue.
        workload: What is trained.
        optimizer: With its rate.
        mesh: The devices.
        batch_size: GLOBAL.
        steps: Trained up to, counted from zero.
        dtype: "float32" or "float64".
        seed: The seed of the initial weights and of the order of the examples.
        threads: Per device.
        options: The strategy's own.
        techniques: How a step is taken, under any strategy.
        weights: One of KEPT_WEIGHTS: the type of all but master weights and optimizer state, as in Megatron-LM; only predicted.
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
        """The bytes of one number of what goes into products, and of parameters that are gathered for them."""
        return self.item_bytes if self.techniques.gathered(self.dtype) == self.dtype else 2

    @property
    def arithmetic(self) -> str:
        """The type in which forward and backward are computed: mixed precision's, or the dtype."""
        return self.techniques.arithmetic(self.dtype)

    @property
    def passes(self) -> int:
        """The forward and backward passes of a step on each shard, one after the other."""
        return self.techniques.passes_of(self.mesh.replicas)

    @property
    def microbatches(self) -> int:
        """The micro-batches of each shard: those of a pipeline for each that is accumulated."""
        return self.passes * vars(self.options).get("microbatches", 1)

    @property
    def examples_per_pass(self) -> int:
        """The examples of a shard that one of its passes takes."""
        return self.batch_size // (self.mesh.replicas * self.passes)

    def optimizer_at(self, step: int) -> OptimizerSpec:
        """Returns the optimizer with the learning rate of a step, counted from 1."""
        return at_step(self.optimizer, self.techniques, step)

    def described(self) -> dict[str, object]:
        """Returns every field as plain values: two runs whose descriptions are equal train the same numbers in the same way."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name, value in plain.items():
            if dataclasses.is_dataclass(value) and not isinstance(value, type | StrategyInfo | Workload):
                plain[name] = dataclasses.asdict(value)
        return plain | {"strategy": self.strategy.name, "workload": self.workload.digest, "mesh": str(self.mesh)}


Cost = Callable[[Run, str], Ledger]
"""What a step costs, given what carries its exchanges."""


@dataclasses.dataclass(frozen=True)
class Formula:
    """What a textbook says of a quantity of the ledger.

    Attributes:
        quantity: "state" or "activations" (bytes of the device that holds most), "sent" (bytes of all processes) or "idle"
            (share of a step).
        value: What the formula gives for the run.
        text: The formula, in the letters of `docs/predicting.md`.
        source: Who says so.
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
        hardware: What it is meant for.
        axes: The mesh axes it understands; the first takes `--devices`. Empty: one device only.
        topology: The processes that a run needs.
        cost: What a step costs: memory, exchanges, bytes on the wire.
        cost_as_measured: The same of the observed step, given also what `Program.measures` returned in each process, where the
            data decide what a step sends and keeps; None where they do not.
        cost_at: What a step costs the devices at each place along `pipe`; None where all devices send alike.
        routes: (process, process) -> the bytes that the first sends to the second in a step; nothing where none are predicted.
        textbook: What textbooks say of state, bytes sent and idle time, given what carries its exchanges.
        backend: What carries its exchanges between CPUs: "memory", "gloo", "grpc" or "tensorpipe".
        reference: The API it shows.
        status: What the maintainers of that API say of it.
        counterpart: Its equivalent in the other framework, as framework:strategy, or ""; the relation is symmetric.
        options: A frozen dataclass; its fields are the strategy's own options.
        measures: The quantities that `Program.measures` returns.
        dtypes: The dtypes it can train in.
        cuts_parameters: Whether devices update parts of parameters although no axis of its mesh cuts them.
        scales_loss: Whether it scales the loss where gradients in two bytes would vanish.
        emulation: What runs instead where its hardware is missing, in words; "" if the strategy runs anywhere.
        synchronous: Whether every step waits for every device under these options, so that parity is promised.
        varies: Why two runs of one command may differ in their bits with these options on CPU cores; "" if they do not.
        compiled_cores: The number of cores for which its file's `compile_step` only compiles a step; 0: it is run.
        refuses: Technique, or feature of a model -> why the strategy cannot take it.
        needs: Raises a ConfigError for a run that the strategy cannot train.
        available: Raises Unavailable for what this machine lacks for the run beside installed packages.
        package: A package that it needs beside its framework; the extra that installs it has the same name.
        danger_of_open_ports: Who can connect to its processes where there is no private network, and what they can do
            then that is more than to spoil a run, as a clause; `{ports}` stands for the ports that are known.
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
    options: type = NoOptions
    cost_as_measured: Callable[[Run, str, Sequence[Mapping[str, float]]], Ledger] | None = None
    cost_at: Callable[[Run, str, int], Ledger] | None = None
    routes: Callable[[Run, Ledger, str], Mapping[tuple[int, int], float]] = lambda run, ledger, backend: {}
    textbook: Callable[[Run, str], tuple[Formula, ...]] = lambda run, backend: ()
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

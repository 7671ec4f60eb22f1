"""What was asked: RunConfig, as text or JSON has it, before it is parsed."""

import dataclasses

from samestep.common.flags import Scalar, flag

FRAMEWORKS = {"numpy": "samestep.common.reference", "torch": "samestep.torch_impl", "tf": "samestep.tf_impl"}
"""Framework -> package. The only place that maps one to the other; `importlib` does the rest."""

OPTIMIZERS = ("sgd", "adamw")
DTYPES = {"float32": 4, "float64": 8}
"""Dtype -> bytes of a number."""


@dataclasses.dataclass(frozen=True)
class Techniques:
    """How a step is taken, under any strategy, without changing what is learned."""

    accumulation_steps: int = flag(
        1, "micro-batches per shard: gradients accumulate, and are exchanged on the last", least=1
    )
    clip_norm: float | None = flag(
        None, "scale the gradient down to this global norm (default: leave it alone)", above=0
    )

    @property
    def are_plain(self) -> bool:
        """Whether the exchanged gradients are used as they are."""
        return self == Techniques(self.accumulation_steps)

    @property
    def need_norm(self) -> bool:
        """Whether the norm of the whole gradient is needed in each step."""
        return self.clip_norm is not None


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """One run, as asked for. Crosses process boundaries as `config.json`; None means the workload's own default."""

    framework: str = flag("torch", "", choices=FRAMEWORKS, compared=False)
    strategy: str = flag(
        "single", "a strategy of the catalogue; `python -m experiments.strategies` lists them", compared=False
    )
    workload: str = flag(
        "digits-mlp",
        "digits-mlp, mnist-cnn, prose-gpt, flights-ranker or synthetic-mlp, -cnn, -gpt, -ranker; sized as in "
        "synthetic-gpt+layers=12+width=768",
    )
    devices: int | None = flag(
        None, "number of devices, along the strategy's first axis (default: 1, in a comparison 2)", least=1
    )
    mesh: str | None = flag(None, "named axis sizes instead of --devices, as in data=2,tensor=2", compared=False)
    steps: int | None = flag(None, "train up to this step, counted from zero (default: the workload's)", least=1)
    batch_size: int | None = flag(
        None, "GLOBAL batch size, whatever the number of devices (default: the workload's)", least=1
    )
    optimizer: str | None = flag(None, "the update (default: the workload's)", choices=OPTIMIZERS)
    learning_rate: float | None = flag(None, "step size (default: the workload's for this optimizer)", above=0)
    dtype: str = flag("float32", "of parameters, activations and gradients", choices=DTYPES)
    seed: int = flag(0, "draws the initial weights and the order of the examples", least=0)
    threads: int = flag(1, "threads per device", least=1)
    out: str | None = flag(
        None, "the run's directory; must not hold a run already (default: a new one under runs/)", place=True
    )
    data: str | None = flag(None, "train the workload's model on your own arrays: a .npz file")
    start_from: str | None = flag(
        None, "a run directory whose state.npz is continued, from any strategy or framework", compared=False
    )
    prepare: bool = flag(
        False,
        "write the run directory and print the lines that start it elsewhere; start nothing",
        place=True,
        compared=False,
    )
    timeout_seconds: float = flag(
        60.0, "a run without progress for that long is ended (first step: ten times as long)", above=0
    )
    parity: bool | None = flag(
        None,
        "judge the run against the NumPy oracle; without it, judged wherever the oracle's curve is cached or costs no "
        "more time than the run itself took; --no-parity skips it and the result says so",
    )
    options: dict[str, Scalar] = dataclasses.field(default_factory=dict)
    techniques: Techniques = Techniques()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """How and where a run is started: the fields of a request that decide none of its numbers. See `RunConfig`."""

    out: str | None
    data: str | None
    start_from: str | None
    prepare: bool
    timeout_seconds: float
    parity: bool | None


def launch_of(config: RunConfig) -> Launch:
    """The part of a request that says how and where it is started."""
    return Launch(**{field.name: getattr(config, field.name) for field in dataclasses.fields(Launch)})

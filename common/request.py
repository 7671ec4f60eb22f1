"""The request, RunConfig, as text or JSON gives it, before it is parsed."""

import dataclasses

from samestep.common.features import Features
from samestep.common.flags import MAX_FACTOR, MAX_STEPS, Scalar, flag
from samestep.common.frameworks import FRAMEWORKS, ORACLE_FRAMEWORK
from samestep.common.mesh import AXES, HEADS
from samestep.common.techniques import Techniques
from samestep.common.workload.optimizers.table import OPTIMIZERS, USER

ORACLE = f"{ORACLE_FRAMEWORK}:oracle"
"""The strategy that every run is compared with."""

MAX_DEVICES = 2**14
"""The most devices of a run: the largest TPUs have 9,216 chips, and a larger number is a typing error."""
MAX_PREDICTED_DEVICES = 100_000
"""The most devices of a run that is only predicted: about as many as the largest machines have."""
MAX_PROCESSES = 1000
"""The most processes of one run, on this machine or on several; in a cluster, each is told the address of every other."""
MAX_THREADS = 1024
"""The most threads of a device, more than the cores of any machine."""
MAX_SECONDS = 100_000
"""The longest timeout, more than a day. The first step may take ten times as long, and frameworks count milliseconds in 31
bits."""
MAX_SEED = 2**63 - 1
MAX_RESTARTS = 10**6
DTYPES = {"float32": 4, "float64": 8}
"""Dtype -> bytes of a number."""
_SPELLINGS = {"fp16": ("float16", "fp16", "half"), "bf16": ("bfloat16", "bf16")}
_HALF = {
    name: f"Products in {kind}, with weights in float32, are --precision {kind}."
    for kind, names in _SPELLINGS.items()
    for name in names
}
AXIS_FLAGS = {f"--{axis}": f"It is an axis of the mesh: --mesh {axis}=2." for axis in AXES}
"""A flag that does not exist, named as an axis -> the sentence that says what to give instead."""
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11}
"""The largest relative error of rounding a number."""
KEPT_WEIGHTS = tuple(name for name in UNIT_ROUNDOFF if name not in DTYPES)
"""The types in which `--weights` may keep parameters, with master weights in float32."""


@dataclasses.dataclass(frozen=True)
class TrainedConfig:
    """The part of a request that says what is trained, and under which strategy."""

    framework: str = flag("torch", "may be left out if only one has the strategy", choices=FRAMEWORKS, compared=False)
    strategy: str = flag("single", "a strategy of the catalogue; `samestep strategies` lists them", compared=False)
    workload: str = flag(
        "digits-mlp",
        "digits-mlp, mnist-cnn, prose-gpt, flights-ranker or synthetic-mlp, -cnn, -gpt, -ranker, -regression; sized as in "
        "synthetic-gpt+layers=12+width=768",
    )
    devices: int | None = flag(
        None,
        "number of devices, along the strategy's first mesh axis (default: 1; in a comparison 2, or several, as in 1,2,4)",
        least=1,
        most=MAX_DEVICES,
        in_cell=True,
    )
    mesh: str | None = flag(
        None,
        "named axis sizes instead of --devices, as in data=2,tensor=2",
        compared=False,
        elsewhere=AXIS_FLAGS,
    )
    steps: int | None = flag(
        None,
        "number of steps, including those before --start-from (default: the workload's)",
        least=1,
        most=MAX_STEPS,
    )
    batch_size: int | None = flag(
        None, "GLOBAL batch size, over all devices (default: the workload's)", least=1, in_cell=True
    )
    optimizer: str | None = flag(
        None, "how weights are updated (default: the workload's)", choices=(*OPTIMIZERS, USER), in_cell=True
    )
    learning_rate: float | None = flag(
        None,
        "step size of the optimizer (default: the workload's for this optimizer)",
        above=0,
        most=MAX_FACTOR,
        in_cell=True,
    )
    dtype: str = flag(
        "float32",
        "the type of parameters, activations and gradients",
        choices=DTYPES,
        in_cell=True,
        elsewhere=_HALF,
    )
    seed: int = flag(
        0, "determines the initial weights and the order of the examples", least=0, most=MAX_SEED, in_cell=True
    )
    threads: int = flag(1, "threads per device", least=1, most=MAX_THREADS, in_cell=True)


@dataclasses.dataclass(frozen=True)
class Launch:
    """How and where a run is started: the fields of a request that affect none of its numbers.

    Attributes:
        described: The folder with the description of `model`, once a worker has made it.
    """

    out: str | None = flag(
        None,
        "directory of the run or the comparison; must not hold a run already (default: a new one under runs/)",
        place=True,
    )
    model: str | None = flag(
        None,
        "your own model instead of --workload: FILE.py, FILE.py:NAME in it, or a name that an installed package offers",
    )
    data: str | None = flag(
        None, "train on your own arrays: a .npz file; with --model also FILE.py:FUNCTION, which returns them"
    )
    start_from: str | None = flag(
        None,
        "continue the run in this directory, which must have kept its state (--keep-state) or a checkpoint; or "
        "begin with what another program wrote: a .safetensors file, or a folder of torch.distributed.checkpoint "
        "or tf.train.Checkpoint; strategy and framework may differ",
        compared=False,
    )
    prepare: bool = flag(
        False,
        "start nothing; write the run directory and print the commands that start the run elsewhere",
        place=True,
        compared=False,
    )
    timeout_seconds: float = flag(
        60.0,
        "end a run that makes no progress for this long; its first step may take ten times as long",
        least=1,
        most=MAX_SECONDS,
    )
    bandwidth: str | None = flag(
        None,
        "give each process of the run its own link, with this limit on what it sends and receives, as in 200mbit or "
        "10gbit (default: loopback, without a limit)",
        in_cell=True,
    )
    parity: bool | None = flag(
        None,
        "compare every step with the NumPy oracle, however long the oracle takes; --no-parity compares none (default: as many "
        "steps as the oracle takes in the time of the run, and at least 20; repeated runs compare more)",
    )
    keep_state: bool = flag(
        False, "keep the final state (state.npz) for --start-from; otherwise it is removed unless the run missed parity"
    )
    evaluate: bool | None = flag(
        None,
        "measure the metric on every held-out example; --no-evaluate skips it (default: on as many as the run "
        "trained on; skipped if the data are random)",
    )
    save_every: str | None = flag(
        None,
        "how often to save a checkpoint: in steps, as in 50, or in seconds, as in 30s; a restarted run "
        "continues from the newest (default: never)",
        compared=False,
    )
    keep: int = flag(2, "how many of the newest checkpoints to keep", least=1, most=MAX_STEPS, compared=False)
    restarts: int = flag(
        0,
        "how many times to restart the processes if one of them dies or hangs; they continue from the "
        "newest checkpoint",
        least=0,
        most=MAX_RESTARTS,
        compared=False,
    )
    elastic: str | None = flag(
        None,
        "instead of --devices: the fewest and the most devices, as in 1:4; a restarted run continues "
        "with fewer until its next checkpoint",
        compared=False,
    )
    trace: bool = flag(
        False,
        "after the measurement, record five more steps: trace.json in the run directory shows what each device"
        " did, and when",
    )
    profile: bool = flag(False, "like --trace, and keep the framework's own profile of these steps as well")
    described: str | None = None

    @property
    def traces(self) -> bool:
        """Returns whether steps are recorded."""
        return self.trace or self.profile

    @property
    def of_reference(self) -> "Launch":
        """The launch of the run that takes the reference's steps, with a timeout of at least a minute."""
        return dataclasses.replace(self, out=None, timeout_seconds=max(self.timeout_seconds, 60.0))

    @property
    def untraced(self) -> "Launch":
        """The launch of an auxiliary run that judges another one: it records and saves nothing."""
        return dataclasses.replace(self, trace=False, profile=False, save_every=None, restarts=0, elastic=None)

    @property
    def needs_state(self) -> bool:
        """Returns whether the final state of the run is needed, to be judged or to be kept."""
        return self.keep_state or self.parity is not False


@dataclasses.dataclass(frozen=True)
class StrategyOptions:
    """The base of every strategy's dataclass of options, with the values of a strategy that lacks an option.

    Attributes:
        schedule: The schedule of its pipeline, a key of `SCHEDULES`; "" for a strategy that has none.
        microbatches: The number of micro-batches into which its pipeline cuts an accumulation step.
        attention_exchange: What attention layers exchange along the axis `context`.
        is_zigzag: Whether a rank has early and late positions, see `Chunk`.
        gathers_keys: Whether keys and values are gathered, and attention is computed again in the backward pass.
        sequence_parallel: Whether norms and residuals are cut along the sequence.
        shard_optimizer: Whether replicas share out the optimizer state of the parameters that all of them have.
        is_serial: Whether a step makes one update on the global batch, and not one for each worker.
    """

    schedule = ""
    microbatches = 1
    attention_exchange = HEADS
    is_zigzag = False
    gathers_keys = False
    sequence_parallel = False
    shard_optimizer = False
    is_serial = False


@dataclasses.dataclass(frozen=True)
class RunConfig(Launch, Features, TrainedConfig):  # which has the fields of its last base first
    """The request for one run. It crosses process boundaries as `config.json`; None means the workload's own default."""

    options: dict[str, Scalar] = dataclasses.field(default_factory=dict)
    techniques: Techniques = dataclasses.field(default_factory=Techniques)


def launch_of(config: RunConfig) -> Launch:
    """Returns the part of a request that says how and where it is started."""
    return Launch(**{field.name: getattr(config, field.name) for field in dataclasses.fields(Launch)})

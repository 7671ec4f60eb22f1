"""What was asked: RunConfig, its spelling, and the frameworks there are."""

import dataclasses
import math
import typing

from common.errors import ConfigError, unknown
from common.mesh import Mesh

FRAMEWORKS = {"numpy": "common.reference", "torch": "torch_impl", "tf": "tf_impl"}
"""Framework -> package. The only place that maps one to the other; `importlib` does the rest."""

OPTIMIZERS = ("sgd", "adamw")
DTYPES = ("float32", "float64")
Scalar = str | int | float | bool | None


@dataclasses.dataclass(frozen=True)
class Techniques:
    """What any strategy may do to the step without changing its numbers.

    Attributes:
        micro_batches: Into how many micro-batches each shard is cut; gradients accumulate, the exchange is on the last.
        clip_norm: The gradient's global norm is scaled down to this; None leaves it alone.
    """

    micro_batches: int = 1
    clip_norm: float | None = None


def flag(default: Scalar, text: str) -> typing.Any:  # what dataclasses.field returns has no nameable type
    """A dataclass field with the line that `--help` prints for it."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """One run, as asked for. Crosses process boundaries as `config.json`; None means the workload's own default."""

    framework: str = flag("torch", f"one of {', '.join(FRAMEWORKS)}")
    strategy: str = flag("single", "a row of the catalogue; `python -m experiments.strategies` lists them")
    workload: str = flag(
        "digits-mlp",
        "digits-mlp, mnist-cnn, prose-gpt, flights-ranker or synthetic-mlp, -cnn, -gpt, -ranker; sized as in "
        "synthetic-gpt+layers=12+width=768",
    )
    devices: int | None = flag(
        None, "number of devices, along the strategy's first axis (default: 1, in a comparison 2)"
    )
    mesh: str | None = flag(None, "named axis sizes instead of --devices, as in data=2,tensor=2")
    steps: int | None = flag(None, "train up to this step, counted from zero (default: the workload's)")
    batch_size: int | None = flag(None, "GLOBAL batch size, whatever the number of devices (default: the workload's)")
    optimizer: str | None = flag(None, f"one of {', '.join(OPTIMIZERS)} (default: the workload's)")
    learning_rate: float | None = flag(None, "step size (default: the workload's for this optimizer)")
    dtype: str = flag("float32", f"one of {', '.join(DTYPES)}")
    seed: int = flag(0, "draws the initial weights and the order of the examples")
    threads: int = flag(1, "threads per device")
    out: str | None = flag(None, "the run's directory; must not hold a run already (default: a new one under runs/)")
    data: str | None = flag(None, "train the workload's model on your own arrays: a .npz file")
    start_from: str | None = flag(None, "a run directory whose state.npz is continued, from any strategy or framework")
    prepare: bool = flag(False, "write the run directory and print the lines that start it elsewhere; start nothing")
    timeout_seconds: float = flag(60.0, "a run without progress for that long is ended (first step: ten times as long)")
    parity: bool | None = flag(
        None,
        "judge the run against the NumPy oracle; without it, judged wherever the oracle's curve is cached or costs no "
        "more time than the run itself took; --no-parity skips it and the result says so",
    )
    options: dict[str, Scalar] = dataclasses.field(default_factory=dict)
    techniques: Techniques = Techniques()

    def as_mesh(self, axes: tuple[str, ...]) -> Mesh:
        """The mesh this run is on.

        Args:
            axes: The axes that the strategy understands; the first takes `--devices`.

        Raises:
            ConfigError: Both forms were given, or the mesh names an axis the strategy does not have.
        """
        if self.mesh is None:
            devices = self.devices if self.devices is not None else 1
            return Mesh(((axes[0], devices),)) if axes else Mesh((("data", devices),))
        mesh = Mesh.parse(self.mesh)
        if self.devices not in (None, mesh.size):
            raise ConfigError(
                f"--devices {self.devices} disagrees with --mesh {mesh} ({mesh.size} devices); give one of them."
            )
        for name, _ in mesh.axes:
            if axes and name not in axes:
                raise unknown("mesh axis", name, axes, f"{self.framework}:{self.strategy} does not split along it.")
        return mesh


_POSITIVE = ("devices", "steps", "batch_size", "learning_rate", "threads", "timeout_seconds")


def check_numbers(config: RunConfig) -> None:
    """Refuses numbers and words that no run can have.

    Raises:
        ConfigError: A number is zero, negative or not finite, or a choice is not among the valid ones.
    """
    for name in _POSITIVE:
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{_flag(name)} is {value}; give a positive, finite number.")
    for name in ("out", "data", "start_from"):
        if getattr(config, name) == "":
            raise ConfigError(f"{_flag(name)} is empty; name a path.")
    if config.seed < 0:
        raise ConfigError(f"--seed is {config.seed}; give a whole number from 0 up.")
    techniques = config.techniques
    if techniques.micro_batches < 1:
        raise ConfigError(f"micro_batches is {techniques.micro_batches}; give a whole number from 1 up.")
    if techniques.clip_norm is not None and not (math.isfinite(techniques.clip_norm) and techniques.clip_norm > 0):
        raise ConfigError(f"clip_norm is {techniques.clip_norm}; give a positive, finite number.")
    if config.dtype not in DTYPES:
        raise unknown("dtype", config.dtype, DTYPES)
    if config.optimizer is not None and config.optimizer not in OPTIMIZERS:
        raise unknown("optimizer", config.optimizer, OPTIMIZERS)
    if config.framework not in FRAMEWORKS:
        raise unknown("framework", config.framework, FRAMEWORKS)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def split_spelling(text: str) -> tuple[str, dict[str, str]]:
    """Splits `name+field=value+field=value` into its name and its fields.

    Raises:
        ConfigError: A part after a `+` is not `field=value`, or a field is given twice.
    """
    name, *parts = text.split("+")
    fields: dict[str, str] = {}
    for part in parts:
        field, equals, value = part.partition("=")
        if not (field and equals and value):
            raise ConfigError(f"'{part}' in '{text}' is not field=value; write it as in {name}+width=128.")
        if field in fields:
            raise ConfigError(f"'{text}' gives '{field}' twice; give each field once.")
        fields[field] = value
    return name, fields


def read_value(owner: type, field: str, text: str) -> Scalar:
    """Reads a value as the type that a dataclass declares for the field.

    Args:
        owner: A dataclass type; the field may be str, int, float or bool, or one of them or None.
        field: A field of it.
        text: What the user wrote.

    Raises:
        ConfigError: The text is not of that type.
    """
    declared = typing.get_type_hints(owner)[field]
    kinds = [kind for kind in (typing.get_args(declared) or (declared,)) if kind is not type(None)]
    try:
        if kinds[0] is bool:
            return {"true": True, "false": False}[text.lower()]
        return kinds[0](text)
    except (ValueError, KeyError):
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}[kinds[0]]
        raise ConfigError(f"{_flag(field)} is '{text}'; give {wanted}.") from None

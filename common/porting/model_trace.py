"""What one implementation of a model computes on one batch, layer by layer, in float64: a file that its worker writes."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.files.arrays import read_arrays
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.files.writing import replacing
from samestep.common.porting.turning import Turned
from samestep.common.workload.models.layer import Stilled
from samestep.common.workload.optimizers.spec import OptimizerSpec
from samestep.common.workload.optimizers.table import OPTIMIZERS

ASKED, CALLS, ARRAYS = "port.json", "trace.json", "trace.npz"
NUDGE = 1e-8
"""How far the weights of a curve are moved, relative, to see how much its steps amplify a deviation."""
IS_FUNCTION = "is_function"
"""The setting of a call between layers whose counterpart is found by what it computes: the two sides may write it otherwise.

It is False of a call that passes on what it is given, whose counterpart is found as that of a layer is."""
MOST_ELEMENTS = 2**22
"""Of the result of such a call, to be recorded."""
CLIP_EPSILON = "clip_epsilon"
"""The setting of an optimizer that says what it adds to a norm by which it divides gradients; it is accepted by this name."""
_MOST_BYTES = 2**26


Setting = bool | float | str | None
Settings = dict[str, Setting]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Amendments:
    """What one side does otherwise than the user's file says, since they accept that the other side does it so.

    Attributes:
        modules: Path of a module -> its attributes.
        frozen: Parameters that stand still, by the framework's own name.
        optimizer: Neutral name of a parameter -> the settings of its update, by the optimizer's own names.
        is_adding_early: Whether Adam's epsilon is added before the bias correction.
        is_bare: Whether the loss is that of the targets alone.
        turned: Path of a module -> what it gets instead of what it was given first; "": what the model returns instead.
    """

    modules: dict[str, Settings] = dataclasses.field(default_factory=dict)
    frozen: tuple[str, ...] = ()
    optimizer: dict[str, Settings] = dataclasses.field(default_factory=dict)
    is_adding_early: bool = False
    is_bare: bool = False
    turned: dict[str, Turned] = dataclasses.field(default_factory=dict)

    def __or__(self, other: "Amendments") -> "Amendments":
        """Returns what both ask for; of a setting in both, that of the other."""
        return Amendments(
            modules=_merged(self.modules, other.modules),
            frozen=tuple(dict.fromkeys((*self.frozen, *other.frozen))),
            optimizer=_merged(self.optimizer, other.optimizer),
            is_adding_early=self.is_adding_early or other.is_adding_early,
            is_bare=self.is_bare or other.is_bare,
            turned={**self.turned, **{path: each.after(self.turned.get(path)) for path, each in other.turned.items()}},
        )


def _merged(one: dict[str, Settings], other: dict[str, Settings]) -> dict[str, Settings]:
    return {name: {**one.get(name, {}), **other.get(name, {})} for name in {**one, **other}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """What a worker is asked to trace.

    Attributes:
        framework: The framework of the worker.
        model: FILE.py:NAME, absolute.
        data: As for `--data`.
        seed: Decides the batches.
        batch_size: Examples of a step.
        steps: The steps of the curve.
        optimizer: A name of ours, unless the user's file gives an optimizer.
        learning_rate: Its rate.
        amendments: What is done otherwise than the user's file says.
        task: What is done: "trace"; "save" writes the weights in the framework's own format, "load" reads them from it.
        checkpoint: The file that is loaded.
    """

    framework: str
    model: str
    data: str
    seed: int
    batch_size: int
    steps: int
    optimizer: str
    learning_rate: float
    amendments: Amendments = dataclasses.field(default_factory=Amendments)
    task: str = "trace"
    checkpoint: str = ""

    @property
    def update(self) -> OptimizerSpec:
        """Our optimizer."""
        return OPTIMIZERS[self.optimizer](self.learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LayerCall:
    """One call of a layer, or of a function between layers.

    Attributes:
        name: The path of the layer.
        kind: The name of its class, or of the function.
        settings: What decides the result.
        inputs: What it was given.
        output: Its first result, in training.
        evaluated: The same in evaluation; None if the calls are others then.
        gradient: The gradient of the loss by the output; None if it has none.
    """

    name: str
    kind: str
    settings: Mapping[str, object]
    inputs: tuple[np.ndarray, ...]
    output: np.ndarray
    evaluated: np.ndarray | None = None
    gradient: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ModelTrace:
    """What one implementation computes from given weights.

    Attributes:
        calls: In the order of execution.
        outputs: The outputs of the model, in training.
        evaluated: The same in evaluation.
        targets: What the outputs of the batch should be.
        loss: The loss of the batch.
        gradients: The gradients of the loss by the parameters, by neutral name; what has none is zero.
        buffers: After one step.
        stepped: The parameters after one step.
        losses: The losses of the curve.
        nudged: The losses from weights that are NUDGE away; () if that was not tried.
        added: What the model adds to the loss of the batch beside that of its targets, by what it is called.
        stilled: What was switched off of each layer that was called, by its path.
        optimizer: Its settings for each parameter, by neutral name.
        rates: The learning rate of each step of the curve, of the first parameters; () where that is not known.
        each: What the user's loss returns for each target or example; empty where it is another one.
    """

    calls: tuple[LayerCall, ...]
    outputs: np.ndarray
    evaluated: np.ndarray
    targets: np.ndarray
    loss: float
    gradients: Mapping[str, np.ndarray]
    buffers: Mapping[str, np.ndarray]
    stepped: Mapping[str, np.ndarray]
    losses: tuple[float, ...]
    nudged: tuple[float, ...] = ()
    added: Mapping[str, float] = dataclasses.field(default_factory=dict)
    stilled: Mapping[str, Stilled] = dataclasses.field(default_factory=dict)
    optimizer: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)
    rates: tuple[float, ...] = ()
    each: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))


_ARRAYS = ("outputs", "evaluated", "targets", "each")
_CURVES = ("losses", "nudged", "rates")
_TABLES = ("gradients", "buffers", "stepped")
_CONFIGURED = ("added", "stilled", "optimizer")


def write_trace(folder: Path, trace: ModelTrace) -> None:
    """Writes a trace.

    Args:
        folder: Where to.
        trace: What was seen.
    """
    arrays = {name: getattr(trace, name) for name in _ARRAYS}
    for table in _TABLES:
        arrays |= {f"{table}/{name}": value for name, value in getattr(trace, table).items()}
    calls = []
    for number, call in enumerate(trace.calls):
        arrays |= {f"calls/{number}/{i}": value for i, value in enumerate(call.inputs)}
        arrays |= {
            f"calls/{number}/{name}": value
            for name in ("output", "evaluated", "gradient")
            if (value := getattr(call, name)) is not None
        }
        calls.append({"name": call.name, "kind": call.kind, "settings": dict(call.settings)})
    with replacing(folder / ARRAYS) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    about = {"calls": calls, "loss": trace.loss}
    about |= {name: getattr(trace, name) for name in (*_CURVES, *_CONFIGURED)}
    with replacing(folder / CALLS) as file:
        file.write((json.dumps(about) + "\n").encode())


def read_trace(folder: Path) -> ModelTrace:
    """Reads a trace.

    Raises:
        ConfigError: There is none, or it is damaged.
    """
    try:
        about, arrays = read_json(folder / CALLS, _MOST_BYTES), read_arrays(folder / ARRAYS)
    except Unreadable as error:
        raise ConfigError(f"{folder} holds no trace: {error}; repeat the command.") from None
    assert isinstance(about, dict)
    return ModelTrace(
        calls=tuple(_call(each, f"calls/{number}/", arrays) for number, each in enumerate(about["calls"])),
        **{name: arrays[name] for name in _ARRAYS},
        loss=about["loss"],
        **{
            table: {n.removeprefix(f"{table}/"): v for n, v in arrays.items() if n.startswith(f"{table}/")}
            for table in _TABLES
        },
        **{name: tuple(about[name]) for name in _CURVES},
        added=about["added"],
        stilled={name: Stilled(*each) for name, each in about["stilled"].items()},
        optimizer=about["optimizer"],
    )


def _call(about: Mapping[str, object], prefix: str, arrays: Mapping[str, np.ndarray]) -> LayerCall:
    inputs: Sequence[str] = sorted(name for name in arrays if name.startswith(prefix) and name[len(prefix) :].isdigit())
    settings = about["settings"]
    assert isinstance(settings, dict)
    return LayerCall(
        name=str(about["name"]),
        kind=str(about["kind"]),
        settings=settings,
        inputs=tuple(arrays[name] for name in inputs),
        output=arrays[f"{prefix}output"],
        evaluated=arrays.get(f"{prefix}evaluated"),
        gradient=arrays.get(f"{prefix}gradient"),
    )

"""What one implementation of a model computes on one batch, layer by layer, in float64: a file that its worker writes."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pydantic

from samestep.common.errors import ConfigError
from samestep.common.files.arrays import read_arrays, save_arrays
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.files.writing import replacing
from samestep.common.porting.turning import Turned
from samestep.common.workload.models.layer import Stilled
from samestep.common.workload.optimizers.spec import OptimizerSpec
from samestep.common.workload.optimizers.table import optimizer_named

ASKED, CALLS, ARRAYS = "port.json", "trace.json", "trace.npz"
NUDGE = 1e-8
"""How far the weights of a curve are moved, relative, to see how much its steps amplify a deviation."""
IS_FUNCTION = "is_function"
"""The setting of a call between layers whose counterpart is found by what it computes: the two sides may write it otherwise.

It is False of a call that passes on what it is given, whose counterpart is found as that of a layer is."""
MOST_ELEMENTS = 2**22
"""The most numbers of the result of such a call that is recorded."""
CLIP_EPSILON = "clip_epsilon"
"""The setting of an optimizer that says what it adds to a norm by which it divides gradients; it is accepted by this name."""
_MOST_BYTES = 2**26
_HOLDS_ARRAYS = pydantic.ConfigDict(arbitrary_types_allowed=True)


Setting = bool | float | str | None
Settings = dict[str, Setting]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Amendments:
    """What one side does differently from the user's file, because the user accepts the other side's behaviour.

    Attributes:
        modules: Path of a module -> its attributes.
        frozen: Parameters that stand still, by the framework's own name.
        optimizer: Neutral name of a parameter -> the settings of its update, by the optimizer's own names.
        is_adding_early: Whether Adam's epsilon is added before the bias correction.
        is_bare: Whether the loss is that of the targets alone.
        turned: Path of a module -> what replaces its first input; "" -> what replaces the output of the model.
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
        amendments: What is done differently from the user's file.
        task: "trace", "save" to write the weights in the framework's own format, or "load" to read them from it.
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
        return optimizer_named(self.optimizer)(self.learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LayerCall:
    """One call of a layer, or of a function between layers.

    Attributes:
        name: The path of the layer.
        kind: The name of its class, or of the function.
        settings: The settings that affect the result.
        inputs: Its inputs.
        output: Its first result, in training.
        evaluated: The same in evaluation; None if the calls differ then.
        gradient: The gradient of the loss by the output; None if it has none.
    """

    __pydantic_config__ = _HOLDS_ARRAYS

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
        nudged: The losses from weights that are changed by NUDGE; () if that was not tried.
        added: Name -> what the model adds to the loss of the batch besides that of its targets.
        stilled: What was switched off of each layer that was called, by its path.
        optimizer: Its settings for each parameter, by neutral name.
        rates: The learning rate of each step of the curve, of the first parameters; () where that is not known.
        each: What the user's loss returns for each target or example; empty if it cannot be computed so.
        frozen: The parameters that the user's file keeps as they are, by neutral name.
    """

    __pydantic_config__ = _HOLDS_ARRAYS

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
    frozen: tuple[str, ...] = ()


_IN_FILE = f"in {ARRAYS}"
"""The key of the placeholder of an array, which says where it is in its file."""


def write_trace(folder: Path, trace: ModelTrace) -> None:
    """Writes a trace.

    Args:
        folder: Where to.
        trace: What was seen.
    """
    arrays: dict[str, np.ndarray] = {}
    about = _without_arrays(trace, "", arrays)
    with replacing(folder / ARRAYS) as file:
        save_arrays(file, arrays)
    with replacing(folder / CALLS) as file:
        file.write((json.dumps(about) + "\n").encode())


def _without_arrays(value: object, path: str, arrays: dict[str, np.ndarray]) -> object:
    """Returns a value as JSON can hold it, and adds the arrays in it to others, by where they are."""
    if isinstance(value, np.ndarray | np.generic):
        arrays[path] = np.asarray(value)
        return {_IN_FILE: path}
    inner = vars(value) if dataclasses.is_dataclass(value) else value
    if isinstance(inner, Mapping):
        return {name: _without_arrays(each, f"{path}/{name}".lstrip("/"), arrays) for name, each in inner.items()}
    if isinstance(inner, list | tuple):
        return [_without_arrays(each, f"{path}/{number}", arrays) for number, each in enumerate(inner)]
    return inner


def read_trace(folder: Path) -> ModelTrace:
    """Reads a trace.

    Raises:
        ConfigError: There is none, or it is damaged.
    """
    try:
        about, arrays = read_json(folder / CALLS, _MOST_BYTES), read_arrays(folder / ARRAYS)
        return pydantic.TypeAdapter(ModelTrace).validate_python(_with_arrays(about, arrays))
    except (Unreadable, KeyError, ValueError) as error:
        raise ConfigError(f"{folder} holds no trace: {error}; repeat the command.") from None


def _with_arrays(about: object, arrays: Mapping[str, np.ndarray]) -> object:
    """Returns what `_without_arrays` was given."""
    if isinstance(about, dict):
        inner = {name: _with_arrays(each, arrays) for name, each in about.items()}
        return arrays[about[_IN_FILE]] if _IN_FILE in about else inner
    return [_with_arrays(each, arrays) for each in about] if isinstance(about, list) else about

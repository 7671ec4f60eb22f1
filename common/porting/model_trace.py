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
"""The relative perturbation of the weights of a curve that shows how much its steps amplify a deviation."""
IS_FUNCTION = "is_function"
"""The setting that marks a call between layers. If True, its counterpart is found by what it computes.

Neither name nor order is used then, since the two sides may write it differently. If False, the call passes its input
on, and its counterpart is found like that of a layer.
"""
MOST_ELEMENTS = 2**22
"""The most elements that the result of such a call may have to be recorded."""
CLIP_EPSILON = "clip_epsilon"
"""The optimizer setting of what is added to the norm that divides gradients; a difference is accepted by this name."""
_MOST_BYTES = 2**26
_HOLDS_ARRAYS = pydantic.ConfigDict(arbitrary_types_allowed=True)


Setting = bool | float | str | None
Settings = dict[str, Setting]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Amendments:
    """What one side does differently from the user's file, because the user accepts the other side's behaviour.

    Attributes:
        modules: Path of a module -> its attributes.
        frozen: Parameters that are not updated, by the framework's own name.
        optimizer: Neutral name of a parameter -> the settings of its update, by the optimizer's own names.
        is_adding_early: Whether Adam's epsilon is added before the bias correction.
        is_bare: Whether the loss leaves out the added losses.
        turned: Path of a module -> what replaces its first input; "" -> what replaces the output of the model.
    """

    modules: dict[str, Settings] = dataclasses.field(default_factory=dict)
    frozen: tuple[str, ...] = ()
    optimizer: dict[str, Settings] = dataclasses.field(default_factory=dict)
    is_adding_early: bool = False
    is_bare: bool = False
    turned: dict[str, Turned] = dataclasses.field(default_factory=dict)

    def __or__(self, other: "Amendments") -> "Amendments":
        """Returns the amendments of both; where both have a setting, `other` wins."""
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
        seed: The seed of the batches.
        batch_size: Examples per step.
        steps: The number of steps of the curve.
        optimizer: The name of one of our optimizers; unused if the user's file gives one.
        learning_rate: The learning rate of that optimizer.
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
        """The optimizer of ours that trains if the user's file gives none."""
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
        evaluated: Its first result in evaluation; None if evaluation makes other calls.
        gradient: The gradient of the loss with respect to the output; None if it has none.
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
        calls: The calls in the order of execution.
        outputs: The outputs of the model, in training.
        evaluated: The outputs in evaluation.
        targets: The targets of the batch.
        loss: The loss of the batch.
        gradients: The gradients of the loss with respect to the parameters, by neutral name; zeros where there is none.
        buffers: The buffers after one step.
        stepped: The parameters after one step.
        losses: The losses of the curve.
        nudged: The losses of the curve from weights perturbed by NUDGE; () if that was not tried.
        added: Name -> an added loss of the batch.
        stilled: What was switched off in each layer that was called, by the path of the layer.
        optimizer: The settings of the optimizer for each parameter, by neutral name.
        rates: The learning rate of the first parameters at each step of the curve; () if it is not known.
        each: The user's loss for each target or example; empty if it can only be computed for the batch.
        frozen: The parameters that the user's file freezes, by neutral name.
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
"""The key of the placeholder for an array; its value is the name of the array in that file."""


def write_trace(folder: Path, trace: ModelTrace) -> None:
    """Writes a trace.

    Args:
        folder: The folder to write to.
        trace: The trace.
    """
    arrays: dict[str, np.ndarray] = {}
    about = _without_arrays(trace, "", arrays)
    with replacing(folder / ARRAYS) as file:
        save_arrays(file, arrays)
    with replacing(folder / CALLS) as file:
        file.write((json.dumps(about) + "\n").encode())


def _without_arrays(value: object, path: str, arrays: dict[str, np.ndarray]) -> object:
    """Returns a value that JSON can hold, and moves the arrays in it to `arrays`, by their paths."""
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
        ConfigError: There is no trace, or it is damaged.
    """
    try:
        about, arrays = read_json(folder / CALLS, _MOST_BYTES), read_arrays(folder / ARRAYS)
        return pydantic.TypeAdapter(ModelTrace).validate_python(_with_arrays(about, arrays))
    except (Unreadable, KeyError, ValueError) as error:
        raise ConfigError(f"{folder} holds no trace: {error}; repeat the command.") from None


def _with_arrays(about: object, arrays: Mapping[str, np.ndarray]) -> object:
    """Puts the arrays back that `_without_arrays` took out."""
    if isinstance(about, dict):
        inner = {name: _with_arrays(each, arrays) for name, each in about.items()}
        return arrays[about[_IN_FILE]] if _IN_FILE in about else inner
    return [_with_arrays(each, arrays) for each in about] if isinstance(about, list) else about

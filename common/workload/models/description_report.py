"""The parts of describing a user's model that both mirrors share: checking its outputs, and writing the findings."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from samestep.common.errors import ConfigError, unknown
from samestep.common.workload.data.dataset import Split
from samestep.common.workload.declaration import BUILDERS, LOSS_METRIC, METRICS, NAMED_METRICS, RETURNED, Model
from samestep.common.workload.declared import call_metric
from samestep.common.workload.models.description import Description, write_description
from samestep.common.workload.models.findings import Findings, Returns
from samestep.common.workload.models.layer import ParameterLayer
from samestep.common.workload.models.loss_check import find_loss
from samestep.common.workload.models.returned import IsTensor
from samestep.common.workload.models.spec import ArraySpec, Param, Role, Segment

EXAMPLES = 2
"""The number of examples that are passed through the model."""
_ROLES: Mapping[str, Role] = {"scale": "scale", "gamma": "scale", "weight": "scale", "bias": "bias", "beta": "bias"}
"""The role of a vector, by the last part of its name; an array of more dims is a kernel, or a table whose rows are looked up."""
_TABLES = {"torch": "table", "tf": "embeddings"}
"""The name of an embedding's table in each framework."""
_MOST_TRIED = 64
_AS_FOUND = (
    *("segments", "blocks", "featured", "layers"),
    *(field.name for field in dataclasses.fields(Findings)),
)
"""The fields that a description takes from a report unchanged."""
LossOfEach = Callable[[], np.ndarray]
"""A function that computes the user's own loss for each target of the examples."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildReport(Findings):
    """What a mirror found by building a model.

    Attributes:
        outputs: The outputs of the first EXAMPLES examples.
        loss_of_each: Computes the user's own loss for these, or the model's; None if the loss is one of ours.
        params: The initial weights by neutral name, in order.
        buffers: The initial buffers.
        segments: As in `Description`.
        splits: The axis along which tensor parallelism splits a parameter, by neutral name.
        reads: As in `Param`, for parameters that are read more than once.
        blocks: As in `Description`.
        featured: As in `Description`.
        layers: As in `Description`.
        frozen: The parameters that are not trained.
        unreached: As in `Param`.
    """

    outputs: np.ndarray
    loss_of_each: LossOfEach | None
    params: Mapping[str, np.ndarray]
    buffers: Mapping[str, np.ndarray]
    segments: tuple[Segment, ...]
    splits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    reads: Mapping[str, int] = dataclasses.field(default_factory=dict)
    blocks: tuple[Segment, ...] = ()
    featured: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    layers: tuple[ParameterLayer, ...] = ()
    frozen: frozenset[str] = frozenset()
    unreached: frozenset[str] = frozenset()


def write_found(
    folder: Path, model: Model, source: str, framework: str, split: Split, seed: int, found: BuildReport
) -> None:
    """Writes the description of a model.

    Args:
        folder: The folder.
        model: The declaration.
        source: The absolute FILE.py:NAME.
        framework: The framework that built it.
        split: The data.
        seed: The seed with which the initial weights were drawn.
        found: What the mirror found.

    Raises:
        ConfigError: The loss cannot take the outputs.
    """
    _refuse_untrainable(model, source, framework, found)
    losses = None if found.loss_of_each is None else found.loss_of_each()
    loss = find_loss(model, source, found.outputs, losses, split.train_targets, EXAMPLES)
    description = Description(
        source=source,
        framework=framework,
        frameworks=tuple(name for name in BUILDERS if model.builder(name) is not None),
        loss=loss.name,
        reduction=loss.reduction,
        ignores=loss.ignores,
        metric=_metric(model, source, found.outputs, split.test_targets),
        params=_params(found, _TABLES[framework]),
        inputs=_array(split.train_inputs, split.test_inputs),
        targets=ArraySpec(split.train_targets.shape[1:], loss.classes),
        buffers={name: value.shape for name, value in found.buffers.items()},
        whole_buffers=tuple(name for name, value in found.buffers.items() if value.dtype.kind != "f"),
        names=dict(model.names),
        accept=tuple(model.accept),
        seed=seed,
        **{name: getattr(found, name) for name in _AS_FOUND},
    )
    params, buffers = ({n: _rounded(v) for n, v in values.items()} for values in (found.params, found.buffers))
    write_description(folder, description, params, buffers)


def _refuse_untrainable(model: Model, source: str, framework: str, found: BuildReport) -> None:
    """Refuses a model that starts with NaN, or has no loss for its framework."""
    if (name := next((name for name, value in found.params.items() if np.isnan(value).any()), None)) is not None:
        raise ConfigError(
            f"--model {source}: the parameter {name} starts as nan; give it numbers when the model is built."
        )
    if isinstance(model.loss, Mapping) and found.loss_of_each is None:
        raise ConfigError(f"--model {source}: loss has no function for {framework}; it has {', '.join(model.loss)}.")


def _params(found: BuildReport, table: str) -> dict[str, Param]:
    return {
        name: Param(
            value.shape,
            _role(name.rpartition("/")[2], value.ndim, table),
            split=found.splits.get(name),
            frozen=name in found.frozen,
            reads=found.reads.get(name, 1),
            unreached=name in found.unreached,
            skipped=name in found.unused and not found.branches,
        )
        for name, value in found.params.items()
    }


def _rounded(value: np.ndarray) -> np.ndarray:
    """Rounds real numbers to float32, so runs in both dtypes start bit-equal."""
    return value.astype(np.float32).astype(np.float64) if value.dtype.kind == "f" else value


def _metric(model: Model, source: str, outputs: np.ndarray, targets: np.ndarray) -> str:
    """Returns the metric's name; a user's own is tried on as many held-out targets as a batch might have."""
    if not callable(model.metric):
        name = model.metric or METRICS.get(str(model.loss), LOSS_METRIC)
        if name not in (*NAMED_METRICS, LOSS_METRIC):
            raise unknown(
                "metric", name, NAMED_METRICS, f"{source} names it; a function of (outputs, targets) will do."
            )
        return name
    tried = targets[:_MOST_TRIED]
    call_metric(model.metric, source, np.resize(outputs, (len(tried), *outputs.shape[1:])), tried)
    name = getattr(model.metric, "__name__", "")
    return name if name.isidentifier() else "metric"


def _array(train: np.ndarray, test: np.ndarray) -> ArraySpec:
    if train.dtype.names is not None:
        return ArraySpec((), None, tuple((name, _array(train[name], test[name])) for name in train.dtype.names))
    ids = None if train.dtype.kind == "f" else int(max(train.max(), test.max())) + 1
    return ArraySpec(train.shape[1:], ids)


def _role(name: str, num_dims: int, table: str) -> Role:
    if num_dims > 1:
        return "table" if name == table else "kernel"
    return _ROLES.get(name, "kernel")


def kind_of(model: Model, outputs: object, is_tensor: IsTensor) -> Returns:
    """Returns the kind of value that a model passes to its loss.

    Args:
        model: The declaration.
        outputs: The value that the model returned.
        is_tensor: Returns whether an object is a tensor.
    """
    if model.loss == RETURNED:
        return "loss"
    return "outputs" if is_tensor(outputs) else "several"

"""The workloads by name, and the only function that makes a Workload from a name."""

import dataclasses
import functools
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import Scalar, flags, join_spelling, read_field, split_spelling
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import ModelSpec, ignores_targets
from samestep.common.workload.workload import Workload

Spec = TypeVar("Spec", ModelSpec, DataSpec)

_REGRESSION_RATES = {"adamw": 2**-9, "sgd": 2**-9}
"""The learning rates for regressions. With those for classes, SGD diverges, since a squared error is steeper for larger targets.
AdamW does not depend on that."""

MAX_SIZE = 2**31 - 1
"""The largest size: frameworks count the elements along a dimension in 31 bits."""
MAX_LAYERS = 1000
"""The largest number of layers: each is built, named and described separately, and the deepest models in use have about 100."""

_MLP, _CNN, _GPT, _RANKER = "mlp:MlpSpec", "cnn:CnnSpec", "transformer:TransformerSpec", "ranker:RankerSpec"
_SYNTHETIC = "synthetic:SyntheticSpec"
_REGRESSION = {"outputs": 2, "loss": "mean_squared_error"}
WORKLOADS: Mapping[str, tuple[str, Mapping[str, Scalar], str, str, Mapping[str, float], int, int]] = {
    "digits-mlp": (_MLP, {}, "images:DigitsSpec", "accuracy", {"sgd": 2**-5, "adamw": 2**-9}, 128, 200),
    "mnist-cnn": (_CNN, {}, "images:Mnist5kSpec", "accuracy", {"adamw": 2**-9, "sgd": 0.02}, 96, 240),
    "prose-gpt": (_GPT, {}, "prose:ProseSpec", "bits_per_byte", {"adamw": 2**-9, "sgd": 0.05}, 24, 150),
    "flights-ranker": (_RANKER, {}, "flights:FlightsSpec", "auc", {"adamw": 2**-9, "sgd": 0.05}, 768, 300),
    "synthetic-mlp": (_MLP, {}, _SYNTHETIC, "accuracy", {"sgd": 0.01, "adamw": 2**-10}, 96, 50),
    "synthetic-cnn": (_CNN, {}, _SYNTHETIC, "accuracy", {"sgd": 0.01, "adamw": 2**-10}, 48, 50),
    "synthetic-gpt": (_GPT, {}, _SYNTHETIC, "bits_per_token", {"adamw": 2**-10, "sgd": 0.01}, 24, 50),
    "synthetic-ranker": (_RANKER, {}, _SYNTHETIC, "auc", {"adamw": 2**-10, "sgd": 0.01}, 192, 50),
    "synthetic-regression": (_MLP, _REGRESSION, _SYNTHETIC, "root_mean_squared_error", _REGRESSION_RATES, 96, 50),
}
"""Name -> the model's spec, its settings and the data's spec, in modules of `models` and `data` that are imported on demand; then
the metric, the learning rates, the batch size and the number of steps."""


@functools.cache
def workload_named(name: str) -> Workload:
    """Makes the workload of a name, which may be the name of a published model.

    Raises:
        ConfigError: There is no such workload.
    """
    if name in WORKLOADS:
        model, fields, data, metric, rates, batch_size, steps = WORKLOADS[name]
        spec = pkgutil.resolve_name(f"{__package__}.models.{model}")(**fields)
        split = pkgutil.resolve_name(f"{__package__}.data.{data}")()
        return Workload(name, spec, split, metric, rates, batch_size, steps)
    from samestep.common.workload.published import PUBLISHED  # here: they are only needed for predictions

    if name not in PUBLISHED:
        raise unknown("workload", name, (*WORKLOADS, *PUBLISHED))
    return PUBLISHED[name]


def resolve(spelling: str, path: str | None = None) -> Workload:
    """Finds a workload by name, sets its fields, and replaces its data by the user's if there are any.

    A field is set in every spec (model or data) that has it. A model follows its data, except in fields that may exceed them.

    Args:
        spelling: The workload with its settings, such as `synthetic-gpt+layers=12`.
        path: The user's data, a .npz file.

    Raises:
        ConfigError: There is no such workload or field, or model and data do not fit.
    """
    name, fields = split_spelling(spelling)
    settable = size_names(spelling, path) if fields else []
    workload = workload_named(name)
    model, data = workload.model, workload.data if path is None else _user_data(path)
    for field in fields:
        if field not in settable:
            owners = ", ".join(other for other in WORKLOADS if field in size_names(other))
            raise unknown(f"field of {name}", field, settable, owner=owners and f"It is one of {owners}.")
    features = {f: read_field(type(s), f, fields[f], "+") for s in (model, data) for f in flags(s) if f in fields}
    sizes = {field: _size(field, text) for field, text in fields.items() if field not in features}
    model, data = _resized(data, sizes | features).fit(_resized(model, sizes | features))
    roomy = [f.name for f in dataclasses.fields(model) if f.metadata.get("may_exceed_data")]
    larger = {field: max(sizes[field], getattr(model, field)) for field in roomy if field in sizes}
    model = dataclasses.replace(model, **larger)
    if ignores_targets(model) and "ignored" not in flags(data):
        raise ConfigError(
            f"all targets of {name} count on these data; leave out +ignored=, or train prose-gpt+ignored=0.3."
        )
    for field, size in sizes.items():
        for spec in (model, data):
            if (kept := getattr(spec, field, size)) != size:  # it would be ignored silently
                remedy = f"give {kept} or more" if field in roomy else f"leave out +{field}="
                raise ConfigError(f"'{field}={fields[field]}' does not fit the data, which need {kept}; {remedy}.")
    if path is not None:
        workload = _for_targets(workload, model)
    return dataclasses.replace(workload, name=join_spelling(name, fields), model=model, data=data)


def size_names(spelling: str, path: str | None = None) -> list[str]:
    """Returns the sizes and features of a workload's model and data that can be set.

    Args:
        spelling: As in `resolve`.
        path: As in `resolve`.

    Raises:
        ConfigError: There is no such workload.
    """
    workload = workload_named(split_spelling(spelling)[0])
    return sorted({*_settable(workload.model), *_settable(workload.data if path is None else _user_data(path))})


def resize(spelling: str, sizes: Mapping[str, str]) -> str:
    """Returns the spelling of a workload with other sizes.

    Args:
        spelling: As in `resolve`.
        sizes: The sizes to set, as the user wrote them.
    """
    name, fields = split_spelling(spelling)
    return join_spelling(name, {**fields, **sizes})


def _user_data(path: str) -> DataSpec:
    from samestep.common.workload.data.user_data import UserSpec  # here: it needs NumPy

    return UserSpec(path)


def title(spelling: str, path: str | None) -> str:
    """Returns a title for a workload: its spelling, or with the user's data, its model and the name of their file.

    Args:
        spelling: As in `resolve`, or the name of the user's model.
        path: The user's data.
    """
    name, plus, fields = spelling.partition("+")
    if path is None:
        return spelling
    try:
        model = workload_named(name).model.name
    except ConfigError:
        model = name
    return f"{model}{plus}{fields} with {Path(path).name}"


def _for_targets(workload: Workload, model: ModelSpec) -> Workload:
    """Returns the workload with the metric that suits the user's targets, and for a regression with the rates that do."""
    if model.loss == "mean_squared_error":
        return dataclasses.replace(workload, metric="root_mean_squared_error", learning_rates=_REGRESSION_RATES)
    of_classes = "bits_per_token" if model.targets().shape else "accuracy"  # tokens need not be bytes
    return dataclasses.replace(workload, metric="auc" if model.loss == "binary_cross_entropy" else of_classes)


def _settable(spec: ModelSpec | DataSpec) -> list[str]:
    sizes = [field.name for field in dataclasses.fields(spec) if field.type is int]
    return [*sizes, *flags(spec)]


def _size(field: str, text: str) -> int:
    least, most = (0 if field == "hash_buckets" else 1), (MAX_LAYERS if field == "layers" else MAX_SIZE)
    size = int(text) if text.isdecimal() and len(text) <= len(str(MAX_SIZE)) else -1
    if not least <= size <= most:
        raise ConfigError(f"'{field}={text}' is not a size; give a whole number from {least} up, at most {most}.")
    return size


def _resized(spec: Spec, values: Mapping[str, Scalar]) -> Spec:
    own = {field: values[field] for field in _settable(spec) if field in values} if values else {}
    return dataclasses.replace(spec, **own)

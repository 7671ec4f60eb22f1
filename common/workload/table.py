"""The workloads by name, and the one resolver from a name to a Workload."""

import dataclasses
from typing import TypeVar

from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import split_spelling
from samestep.common.workload.data.flights import FlightsSpec
from samestep.common.workload.data.images import DigitsSpec, Mnist5kSpec
from samestep.common.workload.data.prose import ProseSpec
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.data.synthetic import SyntheticSpec
from samestep.common.workload.data.user import UserSpec
from samestep.common.workload.models.cnn import CnnSpec
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.models.ranker import RankerSpec
from samestep.common.workload.models.spec import ModelSpec
from samestep.common.workload.models.transformer import TransformerSpec
from samestep.common.workload.workload import Workload

Spec = TypeVar("Spec", ModelSpec, DataSpec)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("digits-mlp", MlpSpec(), DigitsSpec(), "accuracy", {"sgd": 2**-5, "adamw": 2**-9}, 128, 200),
        Workload("mnist-cnn", CnnSpec(), Mnist5kSpec(), "accuracy", {"adamw": 2**-9, "sgd": 0.02}, 96, 240),
        Workload("prose-gpt", TransformerSpec(), ProseSpec(), "bits_per_byte", {"adamw": 2**-9, "sgd": 0.05}, 24, 150),
        Workload("flights-ranker", RankerSpec(), FlightsSpec(), "auc", {"adamw": 2**-9, "sgd": 0.05}, 768, 300),
        Workload("synthetic-mlp", MlpSpec(), SyntheticSpec(), "accuracy", {"sgd": 0.01, "adamw": 2**-10}, 96, 50),
        Workload("synthetic-cnn", CnnSpec(), SyntheticSpec(), "accuracy", {"sgd": 0.01, "adamw": 2**-10}, 48, 50),
        Workload(
            "synthetic-gpt", TransformerSpec(), SyntheticSpec(), "bits_per_byte", {"adamw": 2**-10, "sgd": 0.01}, 24, 50
        ),
        Workload("synthetic-ranker", RankerSpec(), SyntheticSpec(), "auc", {"adamw": 2**-10, "sgd": 0.01}, 192, 50),
    )
}


def resolve(spelling: str, path: str | None = None) -> Workload:
    """Finds a workload by name, sets its fields, and puts it on the user's data if there are any.

    A field goes to every spec (model or data) that has it.

    Args:
        spelling: As in `synthetic-gpt+layers=12`.
        path: The user's own arrays, a .npz file.

    Raises:
        ConfigError: There is no such workload or field, or model and data do not fit.
    """
    name, fields = split_spelling(spelling)
    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS)
    workload = WORKLOADS[name]
    model, data = workload.model, workload.data if path is None else UserSpec(path)
    settable = sorted({*_settable(model), *_settable(data)})
    for field in fields:
        if field not in settable:
            raise unknown(f"field of {name}", field, settable)
    sizes = {field: _size(field, text) for field, text in fields.items()}
    model, data = _resized(data, sizes).fit(_resized(model, sizes))
    for field, size in sizes.items():
        for spec in (model, data):
            if (kept := getattr(spec, field, size)) != size:  # it would be ignored without a word
                raise ConfigError(
                    f"'{field}={fields[field]}' cannot be: the data set {data.name} decides it, with {kept}."
                )
    return dataclasses.replace(workload, name=spelling, model=model, data=data)


def _settable(spec: ModelSpec | DataSpec) -> list[str]:
    plain = (f.name for f in dataclasses.fields(spec) if f.type in (int, float, str))  # pyrefly: ignore
    return [name for name in plain if name not in ("path", "sha256")]


def _size(field: str, text: str) -> int:
    least = 0 if field == "hash_buckets" else 1
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"'{field}={text}' is no size; give a whole number from {least} up.")
    return int(text)


def _resized(spec: Spec, sizes: dict[str, int]) -> Spec:
    own = {field: sizes[field] for field in _settable(spec) if field in sizes}
    return dataclasses.replace(spec, **own)  # pyrefly: ignore

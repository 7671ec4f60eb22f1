"""The workloads by name, and the one resolver from a name to a Workload."""

import dataclasses
import functools
import hashlib
import json
from typing import TypeVar

from common.config import RunConfig, split_spelling
from common.errors import ConfigError, unknown
from common.workload.data.dataset import DataSpec
from common.workload.data.digits import DigitsSpec
from common.workload.data.flights import FlightsSpec
from common.workload.data.mnist5k import Mnist5kSpec
from common.workload.data.prose import ProseSpec
from common.workload.data.synthetic import SyntheticSpec
from common.workload.data.user import UserSpec
from common.workload.models.cnn import CnnSpec
from common.workload.models.mlp import MlpSpec
from common.workload.models.ranker import RankerSpec
from common.workload.models.spec import ModelSpec
from common.workload.models.transformer import TransformerSpec
from common.workload.optimizers import OptimizerSpec

Spec = TypeVar("Spec", ModelSpec, DataSpec)


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is trained: everything that decides the numbers of a training run, except its seed and its length.

    Attributes:
        name: As the user spelled it.
        model: The model's spec.
        data: The data set's spec.
        metric: A name in `evidence.metrics`.
        optimizer: The default optimizer first.
        learning_rates: Optimizer name -> default rate.
        batch_size: Default GLOBAL batch size.
        steps: Default number of steps.
    """

    name: str
    model: ModelSpec
    data: DataSpec
    metric: str
    learning_rates: dict[str, float]
    batch_size: int
    steps: int

    def optimizer(self, config: RunConfig) -> OptimizerSpec:
        """The optimizer of a run; without a choice, the first of `learning_rates`."""
        name = config.optimizer or next(iter(self.learning_rates))
        return OptimizerSpec(name, config.learning_rate or self.learning_rates[name])

    @functools.cached_property
    def digest(self) -> str:
        """sha256 over the numbers of the model, the data set and the metric (not over the name)."""
        described = [_described(self.model), _described(self.data), self.metric]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _described(spec: ModelSpec | DataSpec) -> list[object]:
    fields = dataclasses.asdict(spec)  # pyrefly: ignore
    fields.pop("path", None)  # the user's file counts by its contents
    return [spec.name, fields]


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


def resolve(config: RunConfig) -> Workload:
    """The workload of a run: the named one, with its fields set, on the user's data if there are any.

    A field goes to every spec (model or data) that has it.

    Raises:
        ConfigError: There is no such workload or field, or model and data do not fit.
    """
    name, fields = split_spelling(config.workload)
    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS)
    workload = WORKLOADS[name]
    model = workload.model
    data = workload.data if config.data is None else UserSpec(config.data)
    settable = sorted({field for spec in (model, data) for field in _settable(spec)})
    for field in fields:
        if field not in settable:
            raise unknown(f"field of {name}", field, settable)
    model, data = _with_fields(model, fields), _with_fields(data, fields)
    model, data = data.fit(model)
    _check_kept(fields, model, data)
    return dataclasses.replace(workload, name=config.workload, model=model, data=data)


def _check_kept(fields: dict[str, str], model: ModelSpec, data: DataSpec) -> None:
    """Refuses a size that the data decide: it would be ignored without a word."""
    for field, text in fields.items():
        for spec in (model, data):
            kept = getattr(spec, field, int(text))
            if kept != int(text):
                raise ConfigError(f"'{field}={text}' cannot be: the data set {data.name} decides it, with {kept}.")


def _settable(spec: ModelSpec | DataSpec) -> list[str]:
    plain = (f.name for f in dataclasses.fields(spec) if f.type in (int, float, str))  # pyrefly: ignore
    return [name for name in plain if name not in ("path", "sha256")]


def _with_fields(spec: Spec, fields: dict[str, str]) -> Spec:
    values: dict[str, int] = {}
    for field in _settable(spec):
        if field in fields:
            least, text = (0 if field == "hash_buckets" else 1), fields[field]
            if not text.isdecimal() or int(text) < least:
                raise ConfigError(f"'{field}={text}' is no size; give a whole number from {least} up.")
            values[field] = int(text)
    return dataclasses.replace(spec, **values)  # pyrefly: ignore

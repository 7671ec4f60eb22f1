"""Workload: everything that affects the numbers of a training run, except its optimizer, seed and length."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping

from samestep.common.flags import flags
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import ModelSpec
from samestep.common.workload.optimizers.table import optimizer_named


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model and its data, with defaults for training it.

    Attributes:
        name: The name as the user spelled it.
        model: The model's spec.
        data: The data set's spec.
        metric: A name in `judging.metrics`, or the name of a user's metric.
        learning_rates: Optimizer name -> default rate, if it differs from the optimizer's own; the default optimizer comes first.
        batch_size: The default GLOBAL batch size.
        steps: The default number of steps.
        source: For a published model, which can be predicted but not run, the source of its sizes; "" for all others.
    """

    name: str
    model: ModelSpec
    data: DataSpec
    metric: str
    learning_rates: Mapping[str, float]
    batch_size: int
    steps: int
    source: str = ""

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of the numbers of the model, the data set and the metric, without the name."""
        described = [_described(self.model), _described(self.data), self.metric]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def learning_rate(self, optimizer: str) -> float:
        """Returns the default learning rate of one of our optimizers, or of the user's."""
        given = self.learning_rates
        return given[optimizer] if optimizer in given else optimizer_named(optimizer).default_rate


def _described(spec: ModelSpec | DataSpec) -> list[object]:
    # `several` is left out where it is empty, since most arrays lack it and stored digests must stay valid.
    fields = dataclasses.asdict(spec, dict_factory=lambda pairs: {k: v for k, v in pairs if v or k != "several"})  # pyrefly: ignore
    fields.pop("path", None)  # the user's file counts by its contents
    for name, feature in flags(spec).items():  # a feature that is off must not change the digest of older results
        if fields[name] == feature.default:
            del fields[name]
    return [spec.name, fields]

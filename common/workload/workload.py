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
    """What is trained, with defaults for how.

    Attributes:
        name: As the user spelled it.
        model: The model's spec.
        data: The data set's spec.
        metric: A name in `judging.metrics`, or that of a user's metric.
        learning_rates: Optimizer name -> default rate, where it is not the optimizer's own; the default optimizer first.
        batch_size: Default GLOBAL batch size.
        steps: Default number of steps.
        source: For a published model, which can be predicted but not run, where its sizes come from; "" for all others.
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
        """Returns the SHA-256 of the numbers of the model, the data set and the metric, without the name."""
        described = [_described(self.model), _described(self.data), self.metric]
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def learning_rate(self, optimizer: str) -> float:
        """Returns the default rate of one of our optimizers, or of the user's."""
        given = self.learning_rates
        return given[optimizer] if optimizer in given else optimizer_named(optimizer).default_rate


def _described(spec: ModelSpec | DataSpec) -> list[object]:
    # What most arrays lack is left out: it came later, and digests are kept.
    fields = dataclasses.asdict(spec, dict_factory=lambda pairs: {k: v for k, v in pairs if v or k != "several"})  # pyrefly: ignore
    fields.pop("path", None)  # the user's file counts by its contents
    for name, feature in flags(spec).items():  # one that is off leaves the digest of an older result as it is
        if fields[name] == feature.default:
            del fields[name]
    return [spec.name, fields]

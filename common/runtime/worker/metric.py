"""How good a trained model is: by one of our metrics, or by the user's own function."""

import importlib
from collections.abc import Callable

import numpy as np

from samestep.common.judging.metrics import METRICS
from samestep.common.request import FRAMEWORKS
from samestep.common.strategy import Run
from samestep.common.workload.declaration import CLASSES_FIRST, LOSS_METRIC
from samestep.common.workload.declared import call_metric, load_model

Measure = Callable[[np.ndarray, np.ndarray], float]
"""(outputs, targets) -> the metric."""


def metric_of(run: Run) -> Measure:
    """Finds what measures the workload's metric, in a process of the run's framework."""
    spec, name = run.workload.model, run.workload.metric
    if source := spec.facts.source:
        model = load_model(source, run.framework)
        if callable(given := model.metric):
            return lambda outputs, targets: call_metric(given, source, outputs, targets)
        if name == LOSS_METRIC:
            return importlib.import_module(f"{FRAMEWORKS[run.framework]}.models.user_loss").user_mean_loss(spec)
    measure = METRICS[name].measure
    if spec.loss == CLASSES_FIRST:
        return lambda outputs, targets: measure(np.moveaxis(outputs, 1, -1), targets)
    return measure

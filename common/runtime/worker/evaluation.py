"""Evaluates a trained model on held-out examples: on no more of them than it was trained on, unless all are requested."""

import importlib
import math
import os
from collections.abc import Callable

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.judging.metrics import METRICS
from samestep.common.program import Program
from samestep.common.request import FRAMEWORKS, Launch
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.topology import UNEVALUATED
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import Split
from samestep.common.workload.declaration import CLASSES_FIRST, LOSS_METRIC
from samestep.common.workload.declared import call_metric, load_model

Measure = Callable[[np.ndarray, np.ndarray], float]
"""(outputs, targets) -> the metric."""


def num_evaluated(run: Run, asked: bool | None, held_out: int) -> int:
    """Returns how many of the held-out examples are evaluated: the same under every strategy.

    Args:
        run: What was trained.
        asked: True if all of them were requested, False if none; None if neither was requested.
        held_out: The number of held-out examples.
    """
    if os.environ.get(UNEVALUATED) or asked is False:
        return 0
    if asked:
        return held_out
    return 0 if run.workload.data.is_random else min(held_out, run.steps * run.batch_size)


def evaluate(program: Program, run: Run, launch: Launch, data: Split, file: ProcessFile) -> float | None:
    """Measures the workload's metric on the held-out examples, predicted in full global batches.

    Args:
        program: The trained program.
        run: What was trained.
        launch: Says what was requested.
        data: The data, in the run's dtype.
        file: The file of the current process, which shows how many examples are done.

    Returns:
        The metric on rank 0; None on other ranks, if it is not finite, or if it was not requested.
    """
    held_out = len(data.test_inputs)
    if not (count := num_evaluated(run, launch.evaluate, held_out)):
        return None
    logits = []
    for start in range(0, count, run.batch_size):
        indices = np.arange(start, start + run.batch_size) % held_out
        logits.append(np.asarray(program.predict(data.test_inputs[indices])))
        if (
            file.rank == 0
            and (source := run.workload.model.facts.source)
            and (found := len(logits[-1])) != len(indices)
        ):
            raise ConfigError(
                f"--model {source} returns {found} outputs for {len(indices)} examples; return one for each."
            )
        file.beat(min(count, start + run.batch_size))
    if file.rank != 0:
        return None
    value = _metric_of(run)(np.concatenate(logits)[:count], data.test_targets[:count])
    return value if math.isfinite(value) else None


def _metric_of(run: Run) -> Measure:
    """Returns the function that measures the workload's metric, ours or the user's, in a process of the run's framework."""
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

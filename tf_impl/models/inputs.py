"""The inputs of a model: a tensor, or several by name."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from samestep.common.batch import Batch, BatchPart
from samestep.common.features.used import takes_keys
from samestep.common.strategy import Run
from samestep.common.workload.data.several import each, together
from samestep.common.workload.models.spec import ModelSpec, ignores_targets
from samestep.common.workload.reductions import divisor, is_mean_of_own, own_counts, varies

Inputs = tf.Tensor | Mapping[str, tf.Tensor]
"""The inputs of a model; several are given to a user's model as one mapping."""
Gather = Callable[[Batch, BatchPart], tuple[np.ndarray, np.ndarray]]
"""(the global batch, a part of it) -> the inputs and targets of that part."""

INPUTS, KEYS = "inputs", "keys"
"""What a model that takes keys is given in training: its inputs, and the key of each example."""


def gathering(run: Run) -> Gather:
    """Makes the function that gathers a part of a batch, with what the step needs of the whole batch in the same records.

    Args:
        run: What is trained.
    """
    model = run.workload.model
    # Found once, since each takes microseconds to find.
    has_keys, is_varying = takes_keys(model), varies(model)

    def gather(batch: Batch, part: BatchPart) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = batch.rows(part)
        if has_keys:
            inputs = together({INPUTS: inputs, KEYS: batch.keys(run.seed, part)})
        return inputs, with_shares(model, batch, targets, run.dtype) if is_varying else targets

    return gather


def with_shares(model: ModelSpec, batch: Batch, targets: np.ndarray, dtype: str) -> np.ndarray:
    """Adds to targets what the step needs of the whole batch, if batches of the same size are divided by different numbers.

    Args:
        model: What is trained.
        batch: The global batch.
        targets: The targets of a part of it.
        dtype: The dtype of the run.
    """
    if ignores_targets(model):
        weight = ((targets >= 0) / batch.num_targets).astype(dtype)
        return together({"targets": np.maximum(targets, 0), "weight": weight})
    if not varies(model):
        return targets
    counts = np.array(own_counts(model, "tf", targets) if is_mean_of_own(model) else [1.0] * len(targets))
    return together({"targets": targets, "share": (counts / divisor(model, "tf", batch)).astype(dtype)})


def without_keys(x: Inputs) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Takes the inputs of one of our models apart: the inputs, and in training with dropout the keys."""
    return (x[INPUTS], x[KEYS]) if isinstance(x, Mapping) else (x, None)


def as_inputs(array: np.ndarray) -> Inputs:
    """Makes the inputs of a model from a batch's array.

    Args:
        array: [batch, ...]; its records may hold several arrays.
    """
    return each(array, tf.constant)

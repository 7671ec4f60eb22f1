"""Reductions: the loss of a batch is the sum of the losses that a user's function returns, divided by one number.

That number belongs to the GLOBAL batch, so the parts of shards and micro-batches add up to the same loss.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError
from samestep.common.workload.array_type import Array
from samestep.common.workload.declaration import REDUCTIONS, RETURNED
from samestep.common.workload.models.spec import ModelSpec, ignores_targets

if TYPE_CHECKING:
    from samestep.common.batch import Batch  # which imports NumPy

TARGETS, EXAMPLES, MEAN, SUM = REDUCTIONS
OWN = "own"
"""The name in a description for a reduction that the file gives as a function."""
_ADDS = 1e-9
"""The relative error that a sum may have."""
Divide = Callable[[Array], float]
"""The targets of a whole batch -> the number by which the sum of its losses is divided."""


def varies(model: ModelSpec) -> bool:
    """Returns whether batches of the same size may have different divisors."""
    return ignores_targets(model) or model.facts.reduction == OWN


def fixed_divisor(model: ModelSpec, examples: int) -> int:
    """Returns the divisor of the losses of a batch, provided that all batches of one size have the same divisor.

    Args:
        model: The model.
        examples: The number of examples.
    """
    reduction = model.facts.reduction
    return examples * math.prod(model.targets().shape) if reduction == TARGETS else 1 if reduction == SUM else examples


def divisor(model: ModelSpec, framework: str, batch: "Batch") -> float:
    """Returns the divisor of the losses of a batch, which may depend on the batch's targets.

    Args:
        model: The model.
        framework: The framework of this process, which imports the user's file.
        batch: The GLOBAL batch.
    """
    return batch.num_targets if ignores_targets(model) else divisor_of(model, framework, batch.targets[batch.indices])


def correction(model: ModelSpec, framework: str, batch: "Batch") -> float:
    """Returns the factor that corrects a loss that was divided as if all batches had the same divisor.

    Args:
        model: The model.
        framework: The framework of this process.
        batch: The GLOBAL batch.
    """
    return fixed_divisor(model, len(batch.indices)) / divisor(model, framework, batch)


def divisor_of(model: ModelSpec, framework: str, targets: Array) -> float:
    """Returns the divisor of the losses of some examples.

    Args:
        model: A user's model.
        framework: The framework of this process.
        targets: The targets of the examples.
    """
    if model.facts.reduction != OWN:
        return (targets >= 0).sum() if ignores_targets(model) else fixed_divisor(model, len(targets))
    return own_divisor(_own(model, framework), model.facts.source, targets)


def own_counts(model: ModelSpec, framework: str, targets: Array) -> list[float]:
    """Returns how much each of some examples contributes to the divisor that the user's function computes for all of them.

    Args:
        model: A user's model, whose reduction is a function.
        framework: The framework of this process.
        targets: The targets of the examples.

    Raises:
        ConfigError: The function fails, or its result for all examples is not the sum of its results for each.
    """
    from samestep.common.workload.declared import call_user  # here: only a user's function is called

    source, divide = model.facts.source, _own(model, framework)
    what = f"the reduction of targets {list(targets[:1].shape)}"
    counts = [float(call_user(divide, source, what, targets[n : n + 1])) for n in range(len(targets))]
    whole = own_divisor(divide, source, targets) if any(counts) else 0.0
    if not math.isclose(sum(counts), whole, rel_tol=_ADDS):
        raise ConfigError(
            f"--model {source}: the reduction returns {whole:g} for {len(counts)} examples together, and {sum(counts):g} in "
            f"total for each alone; return a sum over the examples."
        )
    return counts


def _own(model: ModelSpec, framework: str) -> Divide:
    from samestep.common.workload.declared import load_model  # here: only a user's function is called

    given = load_model(model.facts.source, framework).reduction
    assert callable(given)
    return given


def own_divisor(divide: Divide, source: str, targets: Array) -> float:
    """Calls the function that a user's file gives as its reduction.

    Args:
        divide: The function.
        source: The source of the model, for messages.
        targets: The targets of a batch.

    Raises:
        ConfigError: The function fails, or does not return a number above 0.
    """
    from samestep.common.workload.declared import call_user  # here: only a user's function is called

    value = call_user(divide, source, f"the reduction of targets {list(targets.shape)}", targets)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ConfigError(
            f"--model {source}: the reduction returns {value!r:.60}; return what the sum of the losses is divided by, a number "
            f"above 0."
        )
    return number


def metric_of(
    model: ModelSpec, framework: str, loss: Callable[[Array, Array], float]
) -> Callable[[Array, Array], float]:
    """Makes the metric that is the user's own loss on all held-out examples; NaN if the loss needs more than the outputs.

    Args:
        model: The model.
        framework: The framework of this process.
        loss: Sums the losses of outputs and targets.
    """
    if model.facts.returns == "several":
        return lambda outputs, targets: math.nan
    return lambda outputs, targets: loss(outputs, targets) / divisor_of(model, framework, targets)


def times(model: ModelSpec, examples: int) -> int:
    """Returns the factor with which a user's loss for some examples enters the sum.

    Args:
        model: The model.
        examples: The number of examples, which is the factor of a mean.
    """
    return examples if model.facts.reduction == MEAN else 1


def is_mean_of_own(model: ModelSpec) -> bool:
    """Returns whether a model itself computes a mean, over the number that the user's function counts."""
    return model.loss == RETURNED and model.facts.reduction == OWN

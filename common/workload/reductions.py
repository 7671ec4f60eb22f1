"""Reductions: a batch's loss is the sum of the losses that a user's function returns, divided by one number.

That number belongs to the GLOBAL batch, so shards and micro-batches add up to the same loss.
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
"""The name in a description of a reduction that the file gives as a function."""
_ADDS = 1e-9
"""The relative error that a sum may have."""
Divide = Callable[[Array], float]
"""The targets of a whole batch -> the divisor of the sum of its losses."""


def varies(model: ModelSpec) -> bool:
    """Returns whether batches of one size are divided by different numbers."""
    return ignores_targets(model) or model.facts.reduction == OWN


def fixed_divisor(model: ModelSpec, examples: int) -> int:
    """Returns the divisor of the losses of a batch, if all batches of one size have the same.

    Args:
        model: The model.
        examples: The number of examples.
    """
    reduction = model.facts.reduction
    return examples * math.prod(model.targets().shape) if reduction == TARGETS else 1 if reduction == SUM else examples


def divisor(model: ModelSpec, framework: str, batch: "Batch") -> float:
    """Returns the divisor of the losses of a batch, if it depends on the batch's targets.

    Args:
        model: The model.
        framework: The framework of this process, which imports the user's file.
        batch: The GLOBAL batch.
    """
    return batch.num_targets if ignores_targets(model) else divisor_of(model, framework, batch.targets[batch.indices])


def correction(model: ModelSpec, framework: str, batch: "Batch") -> float:
    """Returns the factor that corrects a loss that was divided as if all batches had one divisor.

    Args:
        model: The model.
        framework: That of this process.
        batch: The GLOBAL batch.
    """
    return fixed_divisor(model, len(batch.indices)) / divisor(model, framework, batch)


def divisor_of(model: ModelSpec, framework: str, targets: Array) -> float:
    """Returns the divisor of the losses of some examples.

    Args:
        model: A user's model.
        framework: That of this process.
        targets: The targets of the examples.
    """
    if model.facts.reduction != OWN:
        return (targets >= 0).sum() if ignores_targets(model) else fixed_divisor(model, len(targets))
    return own_divisor(_own(model, framework), model.facts.source, targets)


def own_counts(model: ModelSpec, framework: str, targets: Array) -> list[float]:
    """Returns what each of some examples contributes to the divisor that the user's function computes for all.

    Args:
        model: A user's model, whose reduction is a function.
        framework: That of this process.
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
            f"--model {source}: the reduction makes {whole:g} of {len(counts)} examples and {sum(counts):g} of them one by one; "
            f"return what is counted in each, added up."
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
        source: Where it is declared, for messages.
        targets: The targets of a batch.

    Raises:
        ConfigError: It fails, or returns no number above 0.
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
    """Makes a metric of a user's own loss on all held-out examples; NaN if the loss takes more than outputs.

    Args:
        model: The model.
        framework: That of this process.
        loss: Sums the losses of outputs and targets.
    """
    if model.facts.returns == "several":
        return lambda outputs, targets: math.nan
    return lambda outputs, targets: loss(outputs, targets) / divisor_of(model, framework, targets)


def times(model: ModelSpec, examples: int) -> int:
    """Returns how often a user's loss for some examples counts in the sum.

    Args:
        model: The model.
        examples: The number of examples; a mean counts once for each.
    """
    return examples if model.facts.reduction == MEAN else 1


def is_mean_of_own(model: ModelSpec) -> bool:
    """Returns whether a model computes a mean itself, over the number that the user's function counts."""
    return model.loss == RETURNED and model.facts.reduction == OWN

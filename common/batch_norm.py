"""Batch normalisation of our own models: one definition for all three mirrors, that of torch.

A channel is normalised by the mean and the biased variance of its inputs in training, and by running ones in evaluation. After
a step the running mean is (1 - MOMENTUM) x itself + MOMENTUM x the mean, and the running variance moves likewise to the unbiased
variance. (Keras moves it to the biased one, by a hundredth, and has an epsilon of 1e-3.)

`--batch-norm` says of which examples: of each replica's micro-batch (local), of the whole batch (sync), or none (frozen: the
running statistics are used and kept). The running statistics that count are those of the first replica, which is what
DistributedDataParallel broadcasts and what a variable of MirroredStrategy reads as. It takes its micro-batches in order.

References:
    Ioffe and Szegedy, arXiv 1502.03167; torch.nn.BatchNorm2d (torch 2.13); keras.layers.BatchNormalization (Keras 3.15).
"""

import math

from samestep.common.errors import ConfigError
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import batch_norms

MOMENTUM = 0.1
EPSILON = 1e-5
_GELU_SQUARED = 1 / 3 + 1 / (2 * math.sqrt(3) * math.pi)
DIVISION = {"relu": math.pi / (math.pi - 1), "gelu": _GELU_SQUARED / (_GELU_SQUARED - 1 / (4 * math.pi))}
"""What an activation returns of normal numbers, squared, over its variance: 1.47 and 1.23."""
MOST_GROWTH = 100
"""By how much normalisations may let the square of a rounding error grow; beyond that, nearly nothing would be too much."""


def num_passes(run: Run) -> int:
    """Returns the micro-batches of each shard: those of a pipeline for each that is accumulated."""
    return run.passes * vars(run.options).get("microbatches", 1)


def examples_of_statistics(run: Run) -> int:
    """Returns how many neighbouring examples a batch normalisation takes its statistics of; 0 if it takes the running ones."""
    if run.batch_norm == "frozen":
        return 0
    return run.batch_size // (1 if run.batch_norm == "sync" else run.mesh.replicas * num_passes(run))


def share_left(run: Run) -> float:
    """Returns the share of the running statistics that a step leaves as it is."""
    return 1.0 if run.batch_norm == "frozen" else (1 - MOMENTUM) ** num_passes(run)


def takes_shares(run: Run) -> bool:
    """Whether one of our models takes statistics of parts of a batch, so that the number of parts decides its numbers."""
    return run.batch_norm == "local" and has_batch_norm(run)


def has_batch_norm(run: Run) -> bool:
    """Returns whether the model has batch normalisations that every mirror states."""
    return bool(batch_norms(run.workload.model))


def error_growth(run: Run) -> float:
    """By how much the square of a rounding error grows on its way through the batch normalisations of a model.

    Products round numbers relative to their size; a normalisation subtracts their mean and divides by their deviation. So the
    square of an error grows by E[z^2] / Var[z] of what the layer takes, which is `DIVISION` behind an activation. A deviation
    that is taken of n numbers is itself too small at times, which makes it (n - 2) / (n - 3) times more in the mean.

    References:
        Yang et al., arXiv 1902.08129, "A Mean Field Theory of Batch Normalization", which has the same factors for gradients.
    """
    if not has_batch_norm(run):
        return 1.0
    own = 1.0
    if numbers := numbers_of_statistics(run):
        own = (numbers - 2) / (numbers - 3) if numbers > 3 else math.inf
    return (DIVISION[vars(run.workload.model)["activation"]] * own) ** len(batch_norms(run.workload.model))


def numbers_of_statistics(run: Run) -> int:
    """Returns the fewest numbers that a normalisation takes its statistics of, as its segment returns them; 0 if frozen."""
    names = batch_norms(run.workload.model)
    normed = [segment for segment in run.workload.model.segments() if f"{segment.name}/norm" in names]
    return examples_of_statistics(run) * min(math.prod(segment.outputs[:-1]) for segment in normed)


def check_statistics(run: Run) -> None:
    """Refuses statistics that cannot be: of micro-batches yet to come, or of one number.

    Raises:
        ConfigError: They are asked for.
    """
    if run.batch_norm == "sync" and run.passes > 1:
        raise ConfigError("--batch-norm sync sees one micro-batch at a time; leave out --accumulation-steps.")
    if not has_batch_norm(run) or examples_of_statistics(run) != 1:
        return
    names, segments = batch_norms(run.workload.model), run.workload.model.segments()
    if any(f"{segment.name}/norm" in names and len(segment.outputs) == 1 for segment in segments):
        raise ConfigError(
            f"batch {run.batch_size} leaves each replica's micro-batch one example, which has no variance; give a larger "
            "--batch-size, or --batch-norm frozen."
        )


def refuse_sync(run: Run, why: str) -> None:
    """Refuses statistics of the whole batch, for a strategy of which no replica ever sees them.

    Args:
        run: What is to be trained.
        why: A clause.

    Raises:
        ConfigError: They are asked for.
    """
    if run.batch_norm == "sync":
        raise ConfigError(
            f"{run.name} cannot take --batch-norm sync: {why}; choose torch:ddp, tf:mirrored, or another."
        )

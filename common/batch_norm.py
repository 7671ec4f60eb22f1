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

from samestep.common.errors import ConfigError
from samestep.common.strategy import Run
from samestep.common.workload.models.own import OwnSpec
from samestep.common.workload.models.spec import batch_norms

MOMENTUM = 0.1
EPSILON = 1e-5


def num_replicas(run: Run) -> int:
    """The replicas that take a shard of the batch each."""
    return run.mesh.axis("data") * run.mesh.axis("shard")


def num_passes(run: Run) -> int:
    """The micro-batches of each shard: those of a pipeline for each that is accumulated."""
    return run.accumulation_steps * vars(run.options).get("microbatches", 1)


def examples_of_statistics(run: Run) -> int:
    """How many neighbouring examples a batch normalisation takes its statistics of; 0 if it takes the running ones."""
    if run.batch_norm == "frozen":
        return 0
    return run.batch_size // (1 if run.batch_norm == "sync" else num_replicas(run) * num_passes(run))


def takes_shares(run: Run) -> bool:
    """Whether one of our models takes statistics of parts of a batch, so that the number of parts decides its numbers."""
    return run.batch_norm == "local" and has_batch_norm(run)


def has_batch_norm(run: Run) -> bool:
    """Whether one of our models normalises over the batch."""
    return not isinstance(run.workload.model, OwnSpec) and bool(batch_norms(run.workload.model))


def check_statistics(run: Run) -> None:
    """Refuses statistics that cannot be: of micro-batches yet to come, of one number, of rounded ones, or kept twice.

    Raises:
        ConfigError: They are asked for.
    """
    if run.batch_norm == "sync" and run.accumulation_steps > 1:
        raise ConfigError("--batch-norm sync sees one micro-batch at a time; leave out --accumulation-steps.")
    if not has_batch_norm(run):
        return
    if run.batch_norm == "sync" and run.techniques.compress is not None:
        raise ConfigError(
            "--compress is judged shard by shard, and no shard has the statistics of the whole batch; leave out --batch-norm "
            "sync."
        )
    if (precision := run.techniques.precision) is not None:
        raise ConfigError(
            f"--precision {precision} rounds what the statistics of +norm=batch are taken of, for which no bound is derived; "
            "leave out one of them."
        )
    if run.techniques.recompute:
        raise ConfigError("--recompute would update the running statistics of +norm=batch twice a step; leave it out.")
    if examples_of_statistics(run) != 1:
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

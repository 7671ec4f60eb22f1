"""Batch normalization of our own models: one definition for all three mirrors, that of torch.

A channel is normalized by the mean and the biased variance of its inputs in training, and by running ones in evaluation. After
a step the running mean is (1 - MOMENTUM) x itself + MOMENTUM x the mean, and the running variance moves in the same way towards
the unbiased variance. (Keras moves it towards the biased one, by a hundredth, and has an epsilon of 1e-3.)

`--batch-norm` says which examples the statistics are computed from: each replica's micro-batch (local), the whole batch (sync),
or none (frozen: the running statistics are used and left unchanged). The running statistics that count are those of the first
replica, which is what DistributedDataParallel broadcasts and what a variable of MirroredStrategy reads as. It takes its
micro-batches in order.

References:
    Ioffe and Szegedy, arXiv 1502.03167; torch.nn.BatchNorm2d (torch 2.13); keras.layers.BatchNormalization (Keras 3.15).
"""

import math
from collections.abc import Mapping

from samestep.common.errors import ConfigError
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, layer

MOMENTUM = 0.1
EPSILON = 1e-5


def batch_norms(model: ModelSpec) -> dict[str, int]:
    """Returns the batch normalizations that every mirror states: the path of each, and its number of channels."""
    if model.facts.settings.get("norm") != "batch":
        return {}
    return {layer(name): param.size for name, param in model.params().items() if param.role == "scale"}


def framework_norms(model: ModelSpec) -> Mapping[str, int]:
    """Returns the path and the number of channels of each batch normalization of a user's model, a layer of its framework."""
    return model.facts.featured.get("batch_norm", {})


def buffers(model: ModelSpec) -> dict[str, tuple[int, float]]:
    """Returns the running statistics of one of our models: the size of each, and its initial value."""
    first = {"running_mean": 0.0, "running_var": 1.0}
    return {f"{path}/{name}": (size, first[name]) for path, size in batch_norms(model).items() for name in first}


def examples_of_statistics(run: Run) -> int:
    """Returns how many neighbouring examples the statistics of a batch normalization come from; 0 if it uses running ones."""
    if run.batch_norm == "frozen":
        return 0
    return run.batch_size // (1 if run.batch_norm == "sync" else run.mesh.replicas * run.microbatches)


def share_left(run: Run) -> float:
    """Returns the share of the running statistics that a step leaves unchanged."""
    return 1.0 if run.batch_norm == "frozen" else (1 - MOMENTUM) ** run.microbatches


def takes_shares(run: Run) -> bool:
    """Returns whether one of our models computes statistics of parts of a batch, so the number of parts affects its numbers."""
    return run.batch_norm == "local" and bool(batch_norms(run.workload.model))


def numbers_of_statistics(run: Run) -> int:
    """Returns the fewest numbers from which any normalization computes a channel's statistics; 0 if they are frozen."""
    names = batch_norms(run.workload.model)
    normed = [segment for segment in run.workload.model.segments() if f"{segment.name}/norm" in names]
    return examples_of_statistics(run) * min(math.prod(segment.outputs[:-1]) for segment in normed)


def check_statistics(run: Run) -> None:
    """Refuses statistics that cannot be computed: those of micro-batches yet to come, or of one number.

    Raises:
        ConfigError: The run asks for such statistics.
    """
    if run.batch_norm == "sync" and run.passes > 1:
        raise ConfigError("--batch-norm sync sees one micro-batch at a time; leave out --accumulation-steps.")
    if not batch_norms(run.workload.model) or examples_of_statistics(run) != 1:
        return
    names, segments = batch_norms(run.workload.model), run.workload.model.segments()
    if any(f"{segment.name}/norm" in names and len(segment.outputs) == 1 for segment in segments):
        raise ConfigError(
            f"batch {run.batch_size} leaves each replica's micro-batch one example, which has no variance; give a larger "
            "--batch-size, or --batch-norm frozen."
        )

"""Known mistakes of a whole run, of normalisation, compression and mixed precision, each with a cell in which it matters."""

from samestep.common.judging.roundoff import MASTERS_IN_TWO_BYTES
from samestep.common.reference import silent_compression as compression
from samestep.common.reference import silent_precision as precision
from samestep.common.reference import silent_runs as runs
from samestep.common.reference.mutants import Mutant

GPT = "prose-gpt+layers=1+heads=2+width=8+context=8"
INT8 = f"{GPT}+compress=int8"
NORMED = "digits-mlp+width=8+norm=batch"

DATA_AND_RANKS = (
    Mutant(
        "same_order_each_epoch",
        "the examples come in the order of the first epoch: no epoch was shuffled anew",
        runs.same_order_each_epoch,
        "synthetic-mlp+width=8+examples=48",
    ),
    Mutant(
        "position_lost",
        "the data begin anew where the run continued: their position was lost",
        runs.position_lost,
        GPT,
    ),
    Mutant(
        "clip_on_one_rank",
        "only the first of {devices} ranks has clipped in the step before: the weights of the others are not its own",
        runs.clip_on_one_rank,
        f"{GPT}+clip_norm=0.05",
    ),
)
NORMALISATION = (
    Mutant(
        "local_statistics",
        "batch normalisation takes the statistics of each shard, where those of the whole batch were asked for",
        runs.local_statistics,
        f"{NORMED}+batch_norm=sync",
    ),
    Mutant(
        "running_statistics_lost",
        "the running statistics of batch normalisation were lost before this step",
        runs.statistics_lost,
        NORMED,
    ),
    Mutant(
        "statistics_of_last_microbatch",
        "the running statistics move by the last micro-batch only",
        runs.statistics_of_last_microbatch,
        f"{NORMED}+accumulation_steps=2",
    ),
    Mutant(
        "statistics_moved_twice",
        "the running statistics move twice: the forward pass that moves them was computed once more",
        runs.statistics_moved_twice,
        NORMED,
    ),
)
PRECISION = (
    Mutant(
        "masters_in_two_bytes",
        MASTERS_IN_TWO_BYTES,
        precision.masters_in_two_bytes,
        GPT,
    ),
    Mutant(
        "clip_before_unscaling",
        "the gradient is clipped before it is divided by the loss scale: it is tens of thousands of times too small",
        precision.clip_before_unscaling,
        f"{GPT}+clip_norm=0.05",
    ),
    Mutant(
        "loss_scale_differs_by_rank",
        "the first of {devices} ranks has twice the loss scale of the others, whose shards count half",
        precision.loss_scale_differs_by_rank,
        GPT,
    ),
    Mutant(
        "skipped_on_one_rank",
        "one of {devices} ranks has skipped the step that the others took: its shards did not move",
        precision.skipped_on_one_rank,
        GPT,
    ),
)
COMPRESSION = (
    Mutant(
        "error_feedback_dropped",
        "error feedback is dropped: what compression left out of a gradient is not added to the next one",
        compression.error_feedback_dropped,
        INT8,
    ),
    Mutant(
        "scale_by_rank",
        "each rank scales its int8 by its own largest gradient, where all have to share one scale",
        compression.scale_by_rank,
        INT8,
    ),
)

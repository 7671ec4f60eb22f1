"""Known mistakes in batch normalization that raise no error."""

from samestep.common.features.batch_norm.statistics import batch_norms, takes_shares
from samestep.common.features.used import initial_buffers
from samestep.common.reference.mutants import Context, in_cell
from samestep.common.reference.program import TrainingProgram

_CELL = "digits-mlp+width=8+norm=batch"


def _has_norms(program: TrainingProgram) -> bool:
    return bool(batch_norms(program.run.workload.model))


def local_statistics(program: TrainingProgram, context: Context) -> bool:
    """Makes the program use the statistics of each shard instead of those of the whole batch.

    Args:
        program: The program to be made wrong.
        context: Gives the number of shards.
    """
    program.examples = program.run.batch_size // context.devices
    return _has_norms(program) and program.run.batch_norm == "sync" and context.devices > 1


def statistics_lost(program: TrainingProgram, context: Context) -> bool:
    """Makes the step begin with the running statistics of a new model.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    program.buffers = initial_buffers(program.run.workload.model)
    return _has_norms(program)


def statistics_of_last_microbatch(program: TrainingProgram, context: Context) -> bool:
    """Makes the program update the running statistics by the last micro-batch only.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right, passes = program.keep_statistics, program.run.microbatches

    def keep() -> None:
        for seen in program.context.statistics.values():
            seen[:] = seen[passes - 1 : passes]
        right()

    program.keep_statistics = keep
    return takes_shares(program.run) and passes > 1


def statistics_moved_twice(program: TrainingProgram, context: Context) -> bool:
    """Makes the program update the running statistics twice, by the same micro-batches.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right = program.keep_statistics

    def keep() -> None:
        right()
        right()

    program.keep_statistics = keep
    return _has_norms(program) and program.run.batch_norm != "frozen"


_SENTENCES = {
    "running_statistics_lost": "the running statistics of batch normalization were lost before this step",
    "statistics_of_last_microbatch": "the running statistics move by the last micro-batch only",
    "statistics_moved_twice": "the running statistics move twice: the forward pass that moves them was computed twice",
}
MISTAKES = (
    *in_cell(f"{_CELL}+batch_norm=sync", _SENTENCES, local_statistics=local_statistics),
    *in_cell(_CELL, _SENTENCES, running_statistics_lost=statistics_lost),
    *in_cell(f"{_CELL}+accumulation_steps=2", _SENTENCES, statistics_of_last_microbatch=statistics_of_last_microbatch),
    *in_cell(_CELL, _SENTENCES, statistics_moved_twice=statistics_moved_twice),
)

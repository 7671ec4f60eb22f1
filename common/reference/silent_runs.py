"""Mistakes in which data a step takes, on one rank only, or in batch normalisation, that raised no error, as mutants."""

import dataclasses

from samestep.common.batch import Batch, batches
from samestep.common.batch_norm import has_batch_norm, num_passes, takes_shares
from samestep.common.program import Arrays
from samestep.common.reference.mutants import Context
from samestep.common.reference.program import TrainingProgram
from samestep.common.workload.initial import initial_buffers


def same_order_each_epoch(program: TrainingProgram, context: Context) -> bool:
    """Takes the examples in the order of the first epoch.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right = program.gradients

    def gradients(batch: Batch) -> tuple[float, Arrays]:
        return right(_at(program, batch, batch.step % (len(batch.inputs) // len(batch.indices))))

    program.gradients = gradients
    return True


def position_lost(program: TrainingProgram, context: Context) -> bool:
    """Takes the examples from the beginning on, where the run continued another one.

    Args:
        program: The program to be made wrong.
        context: Has the first step of the run.
    """
    right = program.gradients
    program.gradients = lambda batch: right(_at(program, batch, batch.step - context.first))
    return context.first > 0


def _at(program: TrainingProgram, batch: Batch, step: int) -> Batch:
    """Returns the same step on the examples of another one."""
    other = next(batches(batch.inputs, batch.targets, len(batch.indices), program.run.seed, step))
    return dataclasses.replace(batch, indices=other.indices)


def local_statistics(program: TrainingProgram, context: Context) -> bool:
    """Takes the statistics of each shard, where those of the whole batch were asked for.

    Args:
        program: The program to be made wrong.
        context: Has the number of shards.
    """
    program.examples = program.run.batch_size // context.devices
    return has_batch_norm(program.run) and program.run.batch_norm == "sync" and context.devices > 1


def statistics_lost(program: TrainingProgram, context: Context) -> bool:
    """Begins the step with the running statistics of a new model.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    program.buffers = initial_buffers(program.run.workload.model)
    return has_batch_norm(program.run)


def statistics_of_last_microbatch(program: TrainingProgram, context: Context) -> bool:
    """Moves the running statistics by those of the last micro-batch alone.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right, passes = program.keep_statistics, num_passes(program.run)

    def keep() -> None:
        for seen in program.context.statistics.values():
            seen[:] = seen[passes - 1 : passes]
        right()

    program.keep_statistics = keep
    return takes_shares(program.run) and passes > 1


def statistics_moved_twice(program: TrainingProgram, context: Context) -> bool:
    """Moves the running statistics once more, by the same micro-batches.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right = program.keep_statistics

    def keep() -> None:
        right()
        right()

    program.keep_statistics = keep
    return has_batch_norm(program.run) and program.run.batch_norm != "frozen"

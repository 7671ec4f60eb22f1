"""Mistakes in an update, in its data or in a resumed run that raised no error, as mutants."""

import dataclasses

import numpy as np

from samestep.common.batch import Batch
from samestep.common.program import Arrays
from samestep.common.reference.mutants import GPT, Context, in_cell
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.wrong_steps import train_on


def same_data_on_every_worker(program: TrainingProgram, context: Context) -> bool:
    """Gives every shard the examples of the first shard.

    Args:
        program: The program to be made wrong.
        context: Gives the number of shards.
    """
    count = context.devices
    train_on(program, lambda batch: _taking(batch, np.tile(batch.indices[: len(batch.indices) // count], count)))
    return count > 1


def padded_sample_twice(program: TrainingProgram, context: Context) -> bool:
    """Replaces the last example by the first one.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    train_on(program, lambda batch: _taking(batch, np.append(batch.indices[:-1], batch.indices[0])))
    return True


def _taking(batch: Batch, indices: np.ndarray) -> Batch:
    return dataclasses.replace(batch, indices=indices)


def optimizer_state_lost(program: TrainingProgram, context: Context) -> bool:
    """Makes the step begin with an optimizer state of zeros.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right = program.apply

    def apply(gradients: Arrays) -> None:
        for arrays in program.slots.values():
            for value in arrays.values():
                value[...] = 0
        right(gradients)

    program.apply = apply
    return True


def step_count_lost(program: TrainingProgram, context: Context) -> bool:
    """Makes the optimizer correct the bias of its moments as in the first step.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right = program.update
    program.update = lambda spec, t, w, g, slots: right(spec, 1, w, g, slots)
    return program.optimizer.counts_steps


def schedule_runs_n_times(program: TrainingProgram, context: Context) -> bool:
    """Makes a program use the learning rate that the schedule has after N times as many steps.

    Args:
        program: The program to be made wrong.
        context: Gives the number of shards.
    """
    right, count = program.optimizer_at, context.devices
    program.optimizer_at = lambda step: right(step * count)
    return program.techniques.has_schedule and count > 1


MISTAKES = (
    *in_cell(
        GPT,
        {},
        same_data_on_every_worker=same_data_on_every_worker,
        padded_sample_twice=padded_sample_twice,
        optimizer_state_lost=optimizer_state_lost,
        step_count_lost=step_count_lost,
    ),
    *in_cell(f"{GPT}+warmup_steps=40", {}, schedule_runs_n_times=schedule_runs_n_times),
)

"""Mistakes in the choice of a step's data that raised no error, as mutants."""

import dataclasses

from samestep.common.batch import Batch, batches
from samestep.common.reference.mutants import GPT, Context, in_cell
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.wrong_steps import train_on


def same_order_each_epoch(program: TrainingProgram, context: Context) -> bool:
    """Makes a program take the examples of every epoch in the order of the first epoch.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    train_on(program, lambda batch: _at(program, batch, batch.step % (len(batch.inputs) // len(batch.indices))))
    return True


def position_lost(program: TrainingProgram, context: Context) -> bool:
    """Makes a program start the data from the beginning, although the run continues another one.

    Args:
        program: The program to be made wrong.
        context: Gives the first step of the run.
    """
    train_on(program, lambda batch: _at(program, batch, batch.step - context.first))
    return context.first > 0


def _at(program: TrainingProgram, batch: Batch, step: int) -> Batch:
    """Returns a batch of the same step with the examples of another step."""
    other = next(batches(batch.inputs, batch.targets, len(batch.indices), program.run.seed, step))
    return dataclasses.replace(batch, indices=other.indices)


MISTAKES = (
    *in_cell("synthetic-mlp+width=8+examples=48", {}, same_order_each_epoch=same_order_each_epoch),
    *in_cell(GPT, {}, position_lost=position_lost),
)

"""The mistake of using one learning rate for all groups, as a mutant."""

import dataclasses

from samestep.common.reference.mutants import GPT, Context, Mutant
from samestep.common.reference.program import TrainingProgram


def one_rate(program: TrainingProgram, context: Context) -> bool:
    """Makes biases and the scales of norms use the learning rate of matrices.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right, asked = program.optimizer_at, program.optimizer.vector_rate
    if asked != 1:
        program.optimizer_at = lambda step: dataclasses.replace(right(step), vector_rate=1.0)  # pyrefly: ignore
    return asked != 1


_SENTENCE = "biases and the scales of norms have the learning rate of matrices instead of their own"
MISTAKES = (Mutant("one_rate", _SENTENCE, one_rate, f"{GPT}+vector_rate=4"),)

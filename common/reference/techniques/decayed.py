"""The mistake of applying weight decay to parameters that should have none, as a mutant."""

import dataclasses

from samestep.common.reference.mutants import GPT, Context, Mutant
from samestep.common.reference.program import TrainingProgram


def decayed_everywhere(program: TrainingProgram, context: Context) -> bool:
    """Makes biases and the scales of norms decay as matrices do.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right, spares = program.optimizer_at, program.optimizer.spares_vectors
    if spares:
        program.optimizer_at = lambda step: dataclasses.replace(right(step), spares_vectors=False)  # pyrefly: ignore
    return spares


_SENTENCE = "biases and the scales of norms decay as well, although only matrices should"
MISTAKES = (Mutant("decayed_everywhere", _SENTENCE, decayed_everywhere, f"{GPT}+decayed=matrices"),)

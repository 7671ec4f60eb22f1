"""Mistakes with examples that are split by positions, where each part is taken for a whole example, as mutants."""

import dataclasses

import numpy as np

from samestep.common.batch import Batch
from samestep.common.reference.models.transformer import Attention, Embedding
from samestep.common.reference.mutants import GPT, Context, in_cell
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.wrong_steps import layers_of, train_on
from samestep.common.workload.models.spec import IGNORED, ignores_targets


def local_positions(program: TrainingProgram, context: Context) -> bool:
    """Makes a program number positions from 0 in each part.

    Args:
        program: The program to be made wrong.
        context: Gives the number of parts.
    """
    found, devices = [*layers_of(program, Embedding), *layers_of(program, Attention)], context.devices
    if not found or devices == 1 or program.run.workload.model.inputs().shape[0] % devices:
        return False
    for layer in found:
        layer.places = lambda tokens: np.arange(tokens) % (tokens // devices)
    return True


def local_attention(program: TrainingProgram, context: Context) -> bool:
    """Makes positions see only those of their own part.

    Args:
        program: The program to be made wrong.
        context: Gives the number of parts.
    """
    found, devices = layers_of(program, Attention), context.devices

    def sees(tokens: int) -> np.ndarray:
        part = np.arange(tokens) * devices // tokens
        return np.tri(tokens) * (part[:, None] == part)

    for layer in found:
        layer.sees = sees
    return bool(found) and devices > 1


def shifted_in_parts(program: TrainingProgram, context: Context) -> bool:
    """Makes a program shift targets within each part, so each part but the last lacks the target of its last position.

    Args:
        program: The program to be made wrong.
        context: Gives the number of parts.
    """
    model, devices = program.run.workload.model, context.devices
    has_positions = bool(layers_of(program, Attention))
    if devices == 1 or not has_positions or not ignores_targets(model) or model.inputs().shape[0] % devices:
        return False
    length = model.inputs().shape[0] // devices

    def shifted(batch: Batch) -> Batch:
        targets = batch.targets.copy()
        targets[:, length - 1 : -1 : length] = IGNORED
        return dataclasses.replace(batch, targets=targets)

    train_on(program, shifted)
    return True


_SENTENCES = {
    "local_positions": "positions start from zero in each of {devices} parts of an example: each rank numbers its own part",
    "local_attention": "attention sees only one of {devices} parts of an example at a time: nothing was exchanged",
    "shifted_in_parts": "each of {devices} parts of an example but the last has lost its last target: targets were "
    "shifted within the parts",
}
MISTAKES = (
    *in_cell(GPT, _SENTENCES, local_positions=local_positions, local_attention=local_attention),
    *in_cell(f"{GPT}+ignored=0.5", _SENTENCES, shifted_in_parts=shifted_in_parts),
)

"""Known mistakes in dropout that raise no error."""

from collections.abc import Callable
from functools import partial

import numpy as np

from samestep.common.batch import Batch
from samestep.common.features.dropout.feature import rate_of
from samestep.common.keys import example_keys
from samestep.common.program import Arrays
from samestep.common.reference.features.dropout import Dropout
from samestep.common.reference.models.layers import Saved
from samestep.common.reference.mutants import GPT, Context, in_cell
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.wrong_steps import layers_of

_CELL = f"{GPT}+dropout=0.2"


def with_keys(keys_of: Callable[[np.ndarray, int], np.ndarray], program: TrainingProgram, context: Context) -> bool:
    """Makes the program drop other elements than the right ones.

    Args:
        keys_of: (right keys, number of shards) -> the wrong keys of the whole batch.
        program: The program to be made wrong.
        context: Gives the number of shards.
    """

    def gradients(batch: Batch) -> tuple[float, Arrays]:
        inputs, targets = batch.rows()
        program.context.keys = keys_of(batch.keys(program.run.seed), context.devices)
        program.context.examples = program.examples
        logits, saved = program.model.forward(program.params | program.buffers, inputs)
        loss, dlogits = program.loss(logits, targets)
        values: Arrays = {}
        program.model.backward(program.params, saved, dlogits / batch.num_targets, values)
        program.context.keys, program.context.examples = None, 0
        return loss / batch.num_targets, values

    program.gradients = gradients
    return rate_of(program.run.workload.model) > 0


def unscaled_dropout(program: TrainingProgram, context: Context) -> bool:
    """Makes the program keep elements without multiplying them by 1 / (1 - rate).

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    found = layers_of(program, Dropout)
    for layer in found:
        right, keep = layer.forward, 1 - layer.rate
        vars(layer)["forward"] = partial(_scaled_forward, right, keep)
    return bool(found)


def _scaled_forward(
    right: Callable[..., tuple[np.ndarray, Saved]], keep: float, params: Arrays, x: np.ndarray
) -> tuple[np.ndarray, Saved]:
    y, saved = right(params, x)
    return y * keep, None if saved is None else saved * keep


def _repeat_first(keys: np.ndarray, devices: int) -> np.ndarray:
    return np.tile(keys[: len(keys) // devices], devices)


def _of_first_step(keys: np.ndarray, devices: int) -> np.ndarray:
    return example_keys(0, 0, 0, len(keys))


_SENTENCES = {
    "same_mask_on_every_shard": "every shard drops the elements that the first one drops",
    "same_mask_every_step": "it drops what the first step dropped: the random state was lost",
    "unscaled_dropout": "what dropout keeps is not multiplied by 1 / (1 - rate)",
}
MISTAKES = in_cell(
    _CELL,
    _SENTENCES,
    same_mask_on_every_shard=partial(with_keys, _repeat_first),
    same_mask_every_step=partial(with_keys, _of_first_step),
    unscaled_dropout=unscaled_dropout,
)

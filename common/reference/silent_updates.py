"""Mistakes of an update, of a resumed run or of random numbers that raised no error, as mutants."""

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np

from samestep.common.batch import Batch
from samestep.common.program import Arrays
from samestep.common.reference.models.layers import Dropout, Saved, layers_below
from samestep.common.reference.program import TrainingProgram
from samestep.common.workload.models.spec import draws


def same_data_on_every_worker(program: TrainingProgram, devices: int) -> bool:
    """Gives every shard the examples of the first one.

    Args:
        program: The program to be made wrong.
        devices: The number of shards.
    """
    right = program.gradients
    program.gradients = lambda batch: right(
        _taking(batch, np.tile(batch.indices[: len(batch.indices) // devices], devices))
    )
    return devices > 1


def padded_sample_twice(program: TrainingProgram, devices: int) -> bool:
    """Takes the first example once more, in place of the last.

    Args:
        program: The program to be made wrong.
        devices: The number of shards.
    """
    right = program.gradients
    program.gradients = lambda batch: right(_taking(batch, np.append(batch.indices[:-1], batch.indices[0])))
    return True


def _taking(batch: Batch, indices: np.ndarray) -> Batch:
    return dataclasses.replace(batch, indices=indices)


def optimizer_state_lost(program: TrainingProgram, devices: int) -> bool:
    """Begins the step with an optimizer state of zeros.

    Args:
        program: The program to be made wrong.
        devices: The number of shards.
    """
    right = program.apply

    def apply(gradients: Arrays) -> None:
        for arrays in program.slots.values():
            for value in arrays.values():
                value[...] = 0
        right(gradients)

    program.apply = apply
    return True


def step_count_lost(program: TrainingProgram, devices: int) -> bool:
    """Corrects the bias of the moments as in the first step.

    Args:
        program: The program to be made wrong.
        devices: The number of shards.
    """
    right = program.update
    program.update = lambda spec, t, w, g, slots: right(spec, 1, w, g, slots)
    return program.optimizer.counts_steps


def schedule_runs_n_times(program: TrainingProgram, devices: int) -> bool:
    """Takes the learning rate that the schedule has after N times as many steps.

    Args:
        program: The program to be made wrong.
        devices: The number of shards.
    """
    right = program.optimizer_at
    program.optimizer_at = lambda step: right(step * devices)
    return program.techniques.has_schedule and devices > 1


def identity_log_softmax_gradient(program: TrainingProgram, devices: int) -> bool:
    """Passes the gradient of the log-probabilities on as that of the logits: the softmax's share is missing.

    Args:
        program: The program to be made wrong.
        devices: The number of shards.
    """
    right = program.loss

    def loss(logits: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = right(logits, targets)
        chosen = np.zeros_like(gradient)
        np.put_along_axis(chosen, np.maximum(targets, 0)[..., None], -1.0, axis=-1)
        return value, chosen * (targets >= 0)[..., None]

    program.loss = loss
    return program.run.workload.model.loss == "cross_entropy"


def with_keys(keys_of: Callable[[np.ndarray, Batch, int], np.ndarray], program: TrainingProgram, devices: int) -> bool:
    """Drops other elements than the right ones.

    Args:
        keys_of: (right keys, batch, number of devices) -> the wrong keys of the whole batch.
        program: The program to be made wrong.
        devices: The number of shards.
    """

    def gradients(batch: Batch) -> tuple[float, Arrays]:
        inputs, targets = batch.rows()
        program.context.keys = keys_of(batch.keys(program.run.seed), batch, devices)
        program.context.examples = program.examples
        logits, saved = program.model.forward(program.params | program.buffers, inputs)
        loss, dlogits = program.loss(logits, targets)
        values: Arrays = {}
        program.model.backward(program.params, saved, dlogits / batch.num_targets, values)
        program.context.keys, program.context.examples = None, 0
        return loss / batch.num_targets, values

    program.gradients = gradients
    return draws(program.run.workload.model)


def unscaled_dropout(program: TrainingProgram, devices: int) -> bool:
    """Keeps what it keeps as it is, not times 1 / (1 - rate).

    Args:
        program: The program to be made wrong.
        devices: The number of shards.
    """
    found = [each for each in layers_below(program.model) if isinstance(each, Dropout)]
    for layer in found:
        right, keep = layer.forward, 1 - layer.rate
        vars(layer)["forward"] = partial(_scaled_forward, right, keep)
    return bool(found)


def _scaled_forward(
    right: Callable[..., tuple[np.ndarray, Saved]], keep: float, params: Arrays, x: np.ndarray
) -> tuple[np.ndarray, Saved]:
    y, saved = right(params, x)
    return y * keep, None if saved is None else saved * keep

"""Mistakes of an update or of a resumed run that raised no error, as mutants."""

import dataclasses

import numpy as np

from samestep.common.batch import Batch
from samestep.common.program import Arrays
from samestep.common.reference.program import TrainingProgram


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

"""The ways in which mutants make a program wrong: by its gradients, the weights of parts of a batch, its batches or layers."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from samestep.common.batch import Batch
from samestep.common.program import Arrays
from samestep.common.reference.models.layers import layers_below
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.step import Part, parts_of, times

T = TypeVar("T")


def change_gradients(program: TrainingProgram, change: Callable[[Batch, float, Arrays], Part]) -> None:
    """Makes a program use wrong gradients, or report a wrong loss.

    Args:
        program: The program to be made wrong.
        change: (batch, right loss, right gradients) -> the loss and the gradients to use.
    """
    right = program.gradients
    program.gradients = lambda batch: change(batch, *right(batch))


def train_on(program: TrainingProgram, batch_of: Callable[[Batch], Batch]) -> None:
    """Makes a program take its steps on wrong batches.

    Args:
        program: The program to be made wrong.
        batch_of: The right batch -> the wrong one.
    """
    right = program.gradients
    program.gradients = lambda batch: right(batch_of(batch))


def weigh_parts(
    program: TrainingProgram, weights_of: Callable[[Batch], Sequence[float]], on_loss: bool = False
) -> None:
    """Makes a program weight contiguous equal parts of its batch, where each weight is 1 in a correct step.

    Args:
        program: The program to be made wrong.
        weights_of: Returns the weight of each part; every device has the same number of parts.
        on_loss: Whether the reported loss is weighted as well.
    """

    def gradients(batch: Batch) -> Part:
        weights = weights_of(batch)
        parts = parts_of(program, batch, len(weights))
        loss = sum((w if on_loss else 1.0) * loss for w, (loss, _) in zip(weights, parts, strict=True))
        return loss, combine(program, parts, weights)

    program.gradients = gradients


def combine(program: TrainingProgram, parts: Sequence[Part], weights: Sequence[float]) -> Arrays:
    """Adds up the gradients of parts, and exchanges the sum of each device as the program does.

    Args:
        program: The program, whose run gives the number of devices.
        parts: The parts, in order; every device has the same number of parts.
        weights: The weight of each part, which is 1 in a correct step.
    """
    scaled = [times(values, weight) for weight, (_, values) in zip(weights, parts, strict=True)]
    if program.exchange is None:
        return _added(scaled)
    each = len(scaled) // program.run.num_devices
    shards = [_added(scaled[number : number + each]) for number in range(0, len(scaled), each)]
    total, program.local = program.exchange(program.run, shards, program.local)
    return total


def _added(parts: Sequence[Arrays]) -> Arrays:
    return {name: sum(part[name] for part in parts) for name in parts[0]}  # pyrefly: ignore[bad-return]


def layers_of(program: TrainingProgram, kind: type[T]) -> list[T]:
    """Returns the layers of a class in a program's model.

    Args:
        program: The program.
        kind: The class of the layers.
    """
    return [layer for layer in layers_below(program.model) if isinstance(layer, kind)]

"""The core of the oracle's step: micro-batches and techniques. Each mirror has a counterpart."""

from typing import TYPE_CHECKING

from samestep.common.batch import WHOLE, Batch
from samestep.common.program import Arrays
from samestep.common.techniques import Techniques
from samestep.common.techniques.used import used

if TYPE_CHECKING:
    from samestep.common.reference.program import TrainingProgram

Part = tuple[float, Arrays]
"""The loss and the gradients of a part of the batch, both divided by the number of targets in the GLOBAL batch."""


def accumulate(program: "TrainingProgram", batch: Batch, passes: int) -> tuple[float, Arrays]:
    """Computes and adds up the losses and gradients of all micro-batches.

    Args:
        program: The program whose weights are used.
        batch: The global batch.
        passes: The number of micro-batches.

    Returns:
        The mean loss over all targets of the batch, and its gradients.
    """
    model, context, params = program.model, program.context, program.params | program.buffers
    total_loss = 0.0
    total: Arrays = {}
    count = batch.num_targets or 1  # a part of a batch may have no targets that count
    context.examples = program.examples
    for micro in range(passes):
        part = WHOLE.split(micro, passes)
        inputs, targets = batch.rows(part)
        context.keys, context.added = batch.keys(program.run.seed, part), 0.0
        logits, saved = model.forward(params, inputs)
        micro_loss, dlogits = program.loss(logits, targets)
        gradients: Arrays = {}
        model.backward(params, saved, dlogits / count, gradients)
        total_loss += micro_loss / count + context.added
        total = {name: total[name] + value for name, value in gradients.items()} if total else gradients
    context.keys, context.examples = None, 0
    return total_loss, total


def parts_of(program: "TrainingProgram", batch: Batch, count: int, passes: int = 1) -> list[Part]:
    """Returns the losses and gradients of contiguous equal parts of a batch.

    Args:
        program: The program whose weights are used.
        batch: The global batch.
        count: The number of parts.
        passes: The number of micro-batches of each part.
    """
    found = []
    for number in range(count):
        part = batch.part(number, count)
        loss, gradients = accumulate(program, part, passes)
        share = part.num_targets / batch.num_targets
        found.append((loss * share, times(gradients, share)))
    return found


def times(gradients: Arrays, factor: float) -> Arrays:
    """Returns gradients multiplied by a factor.

    Args:
        gradients: The gradients, by name.
        factor: The factor.
    """
    return {name: gradient * factor for name, gradient in gradients.items()}


def transform(gradients: Arrays, techniques: Techniques) -> Arrays:
    """Applies the techniques that change the gradient of the whole batch.

    Args:
        gradients: The gradients of all parameters.
        techniques: The techniques of the run.
    """
    for each in used(techniques):
        gradients = gradients if each.transform is None else each.transform(gradients, techniques)
    return gradients

"""The core of the oracle's step: micro-batches and techniques. Each mirror has a counterpart."""

from samestep.common.batch import WHOLE, Batch
from samestep.common.program import Arrays
from samestep.common.reference.models.layers import Layer
from samestep.common.reference.models.losses import Loss
from samestep.common.reference.step_context import StepContext
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.used import used


def accumulate(
    model: Layer, context: StepContext, loss: Loss, params: Arrays, batch: Batch, run: Run, examples: int
) -> tuple[float, Arrays]:
    """Computes and adds up the losses and gradients of all micro-batches.

    Args:
        model: The model.
        context: The step context that the model was built with.
        loss: Sums the loss over all targets that it is given.
        params: The model's parameters and buffers.
        batch: The global batch.
        run: The run.
        examples: The number of examples behind each statistic, as in `StepContext`.

    Returns:
        The mean loss over all targets of the batch, and its gradients.
    """
    total_loss = 0.0
    total: Arrays = {}
    count = batch.num_targets or 1  # a part of a batch may have no targets that count
    steps = run.passes
    context.examples = examples
    for micro in range(steps):
        part = WHOLE.split(micro, steps)
        inputs, targets = batch.rows(part)
        context.keys, context.added = batch.keys(run.seed, part), 0.0
        logits, saved = model.forward(params, inputs)
        micro_loss, dlogits = loss(logits, targets)
        gradients: Arrays = {}
        model.backward(params, saved, dlogits / count, gradients)
        total_loss += micro_loss / count + context.added
        total = {name: total[name] + value for name, value in gradients.items()} if total else gradients
    context.keys, context.examples = None, 0
    return total_loss, total


def shard_gradients(
    model: Layer, context: StepContext, loss: Loss, params: Arrays, batch: Batch, run: Run, examples: int
) -> tuple[float, list[Arrays]]:
    """Computes the loss, and each device's share of the gradients; the arguments are those of `accumulate`."""
    total, shards = 0.0, []
    for device in range(run.num_devices):
        part = batch.part(device, run.num_devices)
        part_loss, gradients = accumulate(model, context, loss, params, part, run, examples)
        share = part.num_targets / batch.num_targets
        total += share * part_loss
        shards.append({name: share * value for name, value in gradients.items()})
    return total, shards


def transform(gradients: Arrays, techniques: Techniques) -> Arrays:
    """Applies the techniques that change the gradient of the whole batch.

    Args:
        gradients: The gradients of all parameters.
        techniques: The techniques of the run.
    """
    for each in used(techniques):
        gradients = gradients if each.transform is None else each.transform(gradients, techniques)
    return gradients

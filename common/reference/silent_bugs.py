"""Mistakes from public issue threads that raised no error, as mutants; `docs/silent-bugs.md` says where each happened.

Each names the cell in which it makes a difference. One of them acts on a single step, as all mutants do.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from samestep.common.batch import Batch
from samestep.common.program import Arrays
from samestep.common.reference.models.layers import layers_below
from samestep.common.reference.models.transformer import Embedding, TiedLogits
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.step import accumulate
from samestep.common.techniques import Techniques
from samestep.common.workload.models.spec import ignores_targets
from samestep.common.workload.models.transformer import TOKENS

Part = tuple[float, Arrays]
"""The loss of a part of the batch and its gradients, each divided by the targets of the GLOBAL batch."""


def parts_of(program: TrainingProgram, batch: Batch, count: int) -> list[Part]:
    """Takes contiguous parts of a batch forward and backward, each alone.

    Args:
        program: The program with the weights.
        batch: The global batch.
        count: The number of equal parts.
    """
    plain = dataclasses.replace(program.run, techniques=Techniques())
    trained = program.model, program.context, program.loss, program.params | program.buffers
    found = []
    for number in range(count):
        part = batch.part(number, count)
        loss, gradients = accumulate(*trained, part, plain, program.examples)
        share = part.num_targets / batch.num_targets
        found.append((loss * share, {name: g * share for name, g in gradients.items()}))
    return found


def combine(program: TrainingProgram, parts: Sequence[Part], weights: Sequence[float]) -> Arrays:
    """Adds up the gradients of parts, and exchanges the sums of each device as the program does.

    Args:
        program: Whose run says how many devices there are.
        parts: The parts, in order, as many for each device.
        weights: The weights of each part; all are 1 in the right step.
    """
    scaled = [{name: w * g for name, g in values.items()} for w, (_, values) in zip(weights, parts, strict=True)]
    if program.exchange is None:
        return _added(scaled)
    each = len(scaled) // program.run.num_devices
    shards = [_added(scaled[number : number + each]) for number in range(0, len(scaled), each)]
    total, program.local = program.exchange(program.run, shards, program.local)
    return total


def _added(parts: Sequence[Arrays]) -> Arrays:
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def weigh_microbatches(weight: Callable[[int, int], float], program: TrainingProgram, devices: int) -> bool:
    """Weighs the micro-batches of each shard wrongly; the loss is right.

    Args:
        weight: (micro-batch, number of micro-batches) -> its weight, 1 in the right step.
        program: The program to be made wrong.
        devices: Ignored: a pipeline has fewer shards than devices.
    """
    steps, count = program.run.microbatches, program.run.mesh.replicas * program.run.microbatches

    def gradients(batch: Batch) -> Part:
        parts = parts_of(program, batch, count)
        weights = [weight(number % steps, steps) for number in range(count)]
        return sum(loss for loss, _ in parts), combine(program, parts, weights)

    program.gradients = gradients
    return steps > 1


def mean_of_means(program: TrainingProgram, devices: int) -> bool:
    """Divides each micro-batch of each shard by its own targets.

    Args:
        program: The program to be made wrong.
        devices: Ignored: a pipeline has fewer shards than devices.
    """
    count = program.run.mesh.replicas * program.run.microbatches

    def gradients(batch: Batch) -> Part:
        parts = parts_of(program, batch, count)
        own = [batch.num_targets / (batch.part(number, count).num_targets or 1) / count for number in range(count)]
        return sum(w * loss for w, (loss, _) in zip(own, parts, strict=True)), combine(program, parts, own)

    program.gradients = gradients
    return ignores_targets(program.run.workload.model) and count > 1


def scale_by_batch(factor: Callable[[Batch], float], on_loss: bool, applies: bool, program: TrainingProgram) -> bool:
    """Scales every gradient, and the loss if asked for, by a number of the batch.

    Args:
        factor: The number.
        on_loss: Whether the loss is scaled too.
        applies: Whether the program can be wrong so.
        program: The program to be made wrong.
    """
    right = program.gradients

    def gradients(batch: Batch) -> Part:
        loss, values = right(batch)
        scale = factor(batch)
        return loss * (scale if on_loss else 1.0), {name: g * scale for name, g in values.items()}

    program.gradients = gradients
    return applies


def report_loss(loss_of: Callable[[Sequence[Part]], float], program: TrainingProgram, devices: int) -> bool:
    """Reports another loss; the step is right.

    Args:
        loss_of: Makes it of the parts of the shards.
        program: The program to be made wrong.
        devices: The number of shards.
    """
    right = program.gradients
    program.gradients = lambda batch: (loss_of(parts_of(program, batch, devices)), right(batch)[1])
    return devices > 1


def partial_on_replicated(program: TrainingProgram, devices: int) -> bool:
    """Leaves the gradients of norms and biases as the first shard's part.

    Args:
        program: The program to be made wrong.
        devices: The number of shards.
    """
    right, params = program.gradients, program.run.workload.model.params()

    def gradients(batch: Batch) -> Part:
        (loss, values), (_, first) = right(batch), parts_of(program, batch, devices)[0]
        return loss, {n: first[n] if params[n].role in ("scale", "bias") else g for n, g in values.items()}

    program.gradients = gradients
    return devices > 1


def tied_halves(lookups: float, head: float, program: TrainingProgram, devices: int) -> bool:
    """Weighs the two halves of a tied table's gradient wrongly.

    Args:
        lookups: The weight of the embedding's half.
        head: The weight of the head's half.
        program: The program to be made wrong.
        devices: Ignored.
    """
    kinds = {TiedLogits: head, Embedding: lookups}
    layers = [each for each in layers_below(program.model) if isinstance(each, TiedLogits | Embedding)]
    for layer in layers:
        vars(layer)["backward"] = partial(_weighted_half, kinds[type(layer)], layer.backward)
    return any(isinstance(each, TiedLogits) for each in layers)


def _weighted_half(weight: float, right: Callable[..., np.ndarray], *arguments: object) -> np.ndarray:
    gradients = arguments[-1]
    assert isinstance(gradients, dict)
    before = gradients.pop(TOKENS, 0.0)
    dx = right(*arguments)
    gradients[TOKENS] = before + weight * gradients[TOKENS]
    return dx

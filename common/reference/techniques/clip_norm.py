"""Mistakes in clipping that raised no error, as mutants: a wrong norm or time, clipping on some ranks only, or none at all."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial

from samestep.common.batch import Batch
from samestep.common.program import Arrays
from samestep.common.reference.mutants import GPT, Context, in_cell
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.step import Part, parts_of, times
from samestep.common.reference.techniques.precision import LOSS_SCALE
from samestep.common.reference.wrong_steps import change_gradients, combine
from samestep.common.techniques.clip_norm.statement import clip
from samestep.common.workload.models.transformer import TOKENS

_CLIPPED = f"{GPT}+clip_norm=0.05"


def _set_bound(program: TrainingProgram, bound: float | None) -> None:
    program.techniques = dataclasses.replace(program.techniques, clip_norm=bound)


def clip_by(norm_of: Callable[[Arrays, int], float], program: TrainingProgram, context: Context) -> bool:
    """Makes a program clip by another norm.

    Args:
        norm_of: (gradients, number of shards) -> the norm.
        program: The program to be made wrong.
        context: Gives the number of shards.
    """
    bound, right = program.techniques.clip_norm, program.apply

    def apply(gradients: Arrays) -> None:
        assert bound is not None
        norm = norm_of(gradients, context.devices)
        scale = min(1.0, bound / norm) if norm else 1.0
        _set_bound(program, None)
        right(times(gradients, scale))

    program.apply = apply
    return bound is not None


def norm(gradients: Arrays, of: Callable[[str], bool] = lambda name: True) -> float:
    """Returns the norm of some gradients together.

    Args:
        gradients: The gradients by name.
        of: Returns whether the norm includes a gradient, by its name.
    """
    return math.sqrt(sum(float((g * g).sum()) for name, g in gradients.items() if of(name)))


def clip_each(of_shards: bool, program: TrainingProgram, context: Context) -> bool:
    """Makes a program clip each shard's gradient before the sum, or each parameter's gradient by its own norm.

    Args:
        of_shards: Whether shards are clipped rather than parameters.
        program: The program to be made wrong.
        context: Gives the number of shards.
    """
    bound, count = program.techniques.clip_norm, context.devices
    if bound is None:
        return False
    _set_bound(program, None)
    clip_one = partial(clip, bound=bound)

    def change(batch: Batch, loss: float, values: Arrays) -> Part:
        if not of_shards:
            return loss, {name: clip_one({name: g})[name] for name, g in values.items()}
        own = [(0.0, clip_one(times(gradients, count))) for _, gradients in parts_of(program, batch, count)]
        return loss, combine(program, own, [1 / count] * count)

    change_gradients(program, change)
    return count > 1 or not of_shards


def set_clip(bound: float | None, program: TrainingProgram, context: Context) -> bool:
    """Makes a program clip to a wrong bound, or not at all.

    Args:
        bound: The bound; None turns clipping off.
        program: The program to be made wrong.
        context: Ignored.
    """
    applies = (bound is None) == (program.techniques.clip_norm is not None)
    _set_bound(program, bound)
    return applies


def clip_on_one_rank(program: TrainingProgram, context: Context) -> bool:
    """Makes a step as if only the first rank had clipped in the previous step, so the weights of the other ranks differ.

    Args:
        program: The program to be made wrong.
        context: Gives the state before that step, in which all ranks were equal, and its gradients.
    """
    count, earlier = context.devices, context.earlier
    if program.techniques.clip_norm is None or earlier is None or context.last_gradients is None:
        return False
    others = TrainingProgram(program.run, earlier)
    _set_bound(others, None)
    others.apply(context.last_gradients)

    def gradients(batch: Batch) -> Part:
        parts = [*parts_of(program, batch, count)[:1], *parts_of(others, batch, count)[1:]]
        return sum(loss for loss, _ in parts), combine(program, parts, [1.0] * count)

    program.gradients = gradients
    return count > 1


def clip_before_unscaling(program: TrainingProgram, context: Context) -> bool:
    """Makes a program clip gradients that are still multiplied by the loss scale.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right, bound = program.apply, program.techniques.clip_norm
    if bound is None:
        return False

    def apply(gradients: Arrays) -> None:
        _set_bound(program, None)
        right(times(clip(times(gradients, LOSS_SCALE), bound), 1 / LOSS_SCALE))

    program.apply = apply
    return True


_SENTENCES = {
    "clip_counts_replicas": "the norm it clips by counts each of {devices} replicas",
    "clip_misses_tables": "the norm it clips by leaves out the embedding table",
    "clip_before_reduction": "each shard's gradient is clipped before the sum",
    "clip_each_parameter": "each parameter is clipped by its own norm",
    "clipped_by_default": "the gradient is clipped to a norm of 1, although no clipping was requested",
}
MISTAKES = (
    *in_cell(
        _CLIPPED,
        _SENTENCES,
        clip_by_local_norm=partial(clip_by, lambda g, devices: norm(g) / devices**0.5),
        clip_counts_replicas=partial(clip_by, lambda g, devices: norm(g) * devices**0.5),
        clip_misses_tables=partial(clip_by, lambda g, devices: norm(g, lambda name: name != TOKENS)),
        clip_before_reduction=partial(clip_each, True),
        clip_each_parameter=partial(clip_each, False),
        clip_forgotten=partial(set_clip, None),
    ),
    *in_cell(GPT, _SENTENCES, clipped_by_default=partial(set_clip, 1.0)),
    *in_cell(_CLIPPED, _SENTENCES, clip_on_one_rank=clip_on_one_rank, clip_before_unscaling=clip_before_unscaling),
)

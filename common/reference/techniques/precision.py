"""Mistakes in mixed precision that raised no error, as mutants."""

from functools import partial

import numpy as np

from samestep.common.program import Arrays
from samestep.common.reference.mutants import GPT, Context, in_cell, weigh_shards
from samestep.common.reference.program import TrainingProgram
from samestep.common.techniques.precision.bound import MASTERS_IN_TWO_BYTES

LOSS_SCALE = 2.0**16
"""The initial loss scale of torch's scaler."""


def masters_in_two_bytes(program: TrainingProgram, context: Context) -> bool:
    """Makes a program round every parameter to bf16 after its update.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right = program.apply

    def apply(gradients: Arrays) -> None:
        right(gradients)
        program.params = {name: to_bf16(value) for name, value in program.params.items()}

    program.apply = apply
    return True


def to_bf16(value: np.ndarray) -> np.ndarray:
    """Rounds numbers to the 8 significant bits of bf16, half to even."""
    mantissa, exponent = np.frexp(value)
    return np.ldexp(np.rint(mantissa * 2.0**8), exponent - 8)


def skipped_on_one_rank(program: TrainingProgram, context: Context) -> bool:
    """Leaves the first rank's shard of each parameter unchanged, as if only that rank had seen an overflow in its gradients.

    Args:
        program: The program to be made wrong.
        context: Gives the number of shards, along the dim that comes first in torch.
    """
    right, count, roles = program.apply, context.devices, program.run.workload.model.params()

    def apply(gradients: Arrays) -> None:
        held = [program.params, *program.slots.values()]
        before = [{name: value.copy() for name, value in arrays.items()} for arrays in held]
        right(gradients)
        for now, old in zip([program.params, *program.slots.values()], before, strict=True):
            for name, value in now.items():
                axis = value.ndim - 1 if roles[name].role == "kernel" else 0
                own = (*[slice(None)] * axis, slice(0, -(-value.shape[axis] // count)))
                value[own] = old[name][own]

    program.apply = apply
    return count > 1


_SENTENCES = {
    "masters_in_two_bytes": MASTERS_IN_TWO_BYTES,
    "loss_scale_differs_by_rank": "the first of {devices} ranks has twice the loss scale of the others, whose shards count half",
}
MISTAKES = in_cell(
    GPT,
    _SENTENCES,
    masters_in_two_bytes=masters_in_two_bytes,
    loss_scale_differs_by_rank=partial(weigh_shards, lambda shard, count: 0.5 if shard else 1.0),
    skipped_on_one_rank=skipped_on_one_rank,
)

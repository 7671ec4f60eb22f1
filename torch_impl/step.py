"""The step core that every program of PyTorch shares: the mean loss, accumulation over micro-batches, and norms."""

import contextlib
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist

from samestep.common.batch import Batch, BatchPart
from samestep.common.features.used import takes_keys
from samestep.common.strategy import Run
from samestep.common.tree import add_up
from samestep.common.workload.reductions import divisor, fixed_divisor, varies
from samestep.torch_impl.models import summed_loss
from samestep.torch_impl.models.losses import Loss
from samestep.torch_impl.step_context import StepContext

KEPT_STEPS = 1000
"""Medians are taken over so many of the last steps: memory does not grow with a run."""
ForwardBackward = Callable[[np.ndarray, np.ndarray, bool], torch.Tensor]
"""(inputs, targets, whether it is the last) of one micro-batch -> its loss."""
Accumulate = Callable[[Batch, ForwardBackward], torch.Tensor]
"""(the global batch, what to call once for each micro-batch, in order) -> the sum of the detached losses."""


def mean_loss(run: Run, context: StepContext) -> Loss:
    """Makes the loss of any part of a batch: its share of the loss of the GLOBAL batch.

    It multiplies by the factor that `target_share` returns, so all programs round alike.

    Args:
        run: The run.
        context: The context of the process that computes the loss.
    """
    summed = summed_loss(run.workload.model)
    count = fixed_divisor(run.workload.model, run.batch_size)
    if varies(run.workload.model):
        return lambda logits, targets: summed(logits, targets) * (1 / (context.divisor or count))
    return lambda logits, targets: summed(logits, targets) * (1 / count)


def target_share(run: Run, context: StepContext, device: torch.device) -> Callable[[], torch.Tensor]:
    """Makes the function that returns the factor from a summed loss to its share of the loss of the present GLOBAL batch.

    Args:
        run: The run.
        context: The context of this process.
        device: The device of the losses.
    """
    model, dtype = run.workload.model, getattr(torch, run.dtype)
    if varies(model):
        return lambda: torch.tensor(1 / context.divisor, dtype=dtype, device=device)
    share = torch.tensor(1 / fixed_divisor(model, run.batch_size), dtype=dtype, device=device)
    return lambda: share


def accumulation(run: Run, context: StepContext, part: BatchPart, device: torch.device | None = None) -> Accumulate:
    """Makes the function that takes every micro-batch of a part of each batch forward and backward; the gradients add up.

    Args:
        run: The run.
        context: That the model was built with.
        part: Which part of every global batch.
        device: The device of the model; the CPU, unless given.
    """
    model = run.workload.model
    # Known before any step: each would take microseconds to find.
    has_keys, is_varying = takes_keys(model), varies(model)
    *ahead, last = [part.split(micro, run.passes) for micro in range(run.passes)]

    def take(batch: Batch, own: BatchPart, forward_backward: ForwardBackward) -> torch.Tensor:
        keys = torch.from_numpy(batch.keys(run.seed, own)).to(device) if has_keys else None
        with context.numbered(keys) if has_keys else contextlib.nullcontext():
            return forward_backward(*batch.rows(own), own is last).detach()

    def accumulate(batch: Batch, forward_backward: ForwardBackward) -> torch.Tensor:
        context.routed = []
        if is_varying:
            context.divisor = divisor(model, run.framework, batch)
        return add_up([take(batch, own, forward_backward) for own in (*ahead, last)], torch.add)

    return accumulate


def norm_over_ranks(squared: torch.Tensor) -> torch.Tensor:
    """Computes the norm of the whole gradient from each rank's part of its square, of which every one counts once."""
    dist.all_reduce(squared)
    return squared.sqrt()

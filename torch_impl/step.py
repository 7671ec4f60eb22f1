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


def mean_loss(run: Run, context: StepContext) -> Loss:
    """Makes the loss of any part of a batch: its share of the loss of the GLOBAL batch.

    It multiplies with what `target_share` says, so that all programs round alike.

    Args:
        run: What is trained.
        context: The context of the process that computes the loss.
    """
    summed = summed_loss(run.workload.model)
    count = fixed_divisor(run.workload.model, run.batch_size)
    if varies(run.workload.model):
        return lambda logits, targets: summed(logits, targets) * (1 / (context.divisor or count))
    return lambda logits, targets: summed(logits, targets) * (1 / count)


def target_share(run: Run, context: StepContext, device: torch.device) -> Callable[[], torch.Tensor]:
    """Makes what tells how much one summed loss counts in that of the present GLOBAL batch.

    Args:
        run: What is trained.
        context: The context of this process.
        device: The device of the losses.
    """
    model, dtype = run.workload.model, getattr(torch, run.dtype)
    if varies(model):
        return lambda: torch.tensor(1 / context.divisor, dtype=dtype, device=device)
    share = torch.tensor(1 / fixed_divisor(model, run.batch_size), dtype=dtype, device=device)
    return lambda: share


def accumulate(
    run: Run,
    context: StepContext,
    batch: Batch,
    part: BatchPart,
    forward_backward: ForwardBackward,
    device: torch.device | None = None,
) -> torch.Tensor:
    """Takes every micro-batch of a part forward and backward; the gradients add up.

    Args:
        run: What is trained.
        context: That the model was built with.
        batch: The global batch.
        part: Which part of it.
        forward_backward: The function to call once for each micro-batch, in order.
        device: The device of the model; the CPU, unless given.

    Returns:
        The sum of the detached losses.
    """
    steps, numbers = run.passes, takes_keys(run.workload.model)
    losses, context.routed = [], []
    if varies(run.workload.model):
        context.divisor = divisor(run.workload.model, run.framework, batch)
    for micro in range(steps):
        own = part.split(micro, steps)
        keys = torch.from_numpy(batch.keys(run.seed, own)).to(device) if numbers else None
        with context.numbered(keys) if numbers else contextlib.nullcontext():
            losses.append(forward_backward(*batch.rows(own), micro == steps - 1).detach())
    return add_up(losses, torch.add)


def norm_over_ranks(squared: torch.Tensor) -> torch.Tensor:
    """Computes the norm of the whole gradient from each rank's part of its square, of which every one counts once."""
    dist.all_reduce(squared)
    return squared.sqrt()

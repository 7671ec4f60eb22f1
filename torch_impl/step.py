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
"""The number of last steps over which medians are taken, so memory does not grow with a run."""
ForwardBackward = Callable[[np.ndarray, np.ndarray, bool], torch.Tensor]
"""Given the inputs and targets of a micro-batch and whether it is the last, returns its loss."""
Accumulate = Callable[[Batch, ForwardBackward], torch.Tensor]
"""Given the global batch and a function to call once for each micro-batch, returns the sum of the detached losses."""


def mean_loss(run: Run, context: StepContext) -> Loss:
    """Returns a function that computes, for any part of a batch, its share of the mean loss of the GLOBAL batch.

    It multiplies by the factor of `target_share`, so all programs round alike.

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
    """Returns a function whose result turns a summed loss into its share of the mean loss of the current GLOBAL batch.

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
    """Returns a function that runs every micro-batch of a part of a batch forward and backward, accumulating gradients.

    Args:
        run: The run.
        context: The context that the model was built with.
        part: The part of every global batch to take.
        device: The device of the model; None stands for the CPU.
    """
    model = run.workload.model
    # Computed once, because each takes microseconds.
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
    """Returns the norm of the whole gradient, given this rank's part of its square."""
    dist.all_reduce(squared)
    return squared.sqrt()

"""The load-balancing loss of a mixture of experts, over all ranks."""

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from samestep.common.features.experts.balance import balance_of, scale_of
from samestep.common.strategy import Run
from samestep.common.workload.reductions import fixed_divisor
from samestep.torch_impl.step_context import StepContext

if TYPE_CHECKING:
    from samestep.torch_impl.models.losses import Loss  # models import this module


def with_balance(run: Run, loss: "Loss", context: StepContext) -> "Loss":
    """Returns a loss to which a rank's part of the load-balancing loss is added; the mean loss divides it by all targets.

    Args:
        run: The run.
        loss: The loss summed over all targets.
        context: Holds what the experts noted in the preceding forward pass.
    """
    model = run.workload.model
    if not balance_of(model):
        return loss
    scale, count = scale_of(run), fixed_divisor(model, run.batch_size)

    def balanced(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        of_targets = loss(outputs, targets)
        routed, context.routed = context.routed or [], None
        tokens_LE, probabilities_LE = (torch.stack(each) for each in zip(*routed, strict=True))
        tokens_LE = tokens_LE.to(probabilities_LE.dtype)
        if run.mesh.batch_axes:
            dist.all_reduce(tokens_LE)
        return of_targets + (tokens_LE * probabilities_LE).sum() * (scale * (context.divisor or count))

    return balanced

"""The scale of the loss in fp16, without which small gradients would be zero; all ranks change it together.

The backward pass starts with the scale in place of 1, and gradients are divided by it before anything else is done to them.
If one of them is not finite on any rank, no rank takes the step, and the scale is halved. After many steps without that it is
doubled.

References:
    torch.amp.GradScaler (torch 2.13), whose factors these are; it agrees with nobody, and nor does FSDP2 for it.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist

from samestep.common.program import SKIPPED, Arrays
from samestep.common.strategy import Run
from samestep.torch_impl.sharded import local_part
from samestep.torch_impl.step_context import StepContext

FIRST_SCALE, GROWTH, BACKOFF, PATIENCE = 2.0**16, 2.0, 0.5, 2000
"""What it begins with, what it is multiplied by, and after how many good steps."""
SCALE, GOOD = "loss_scale", "good_steps"


class LossScaler:
    """The scale of the present step, in the context for the backward passes, and what became of the steps before.

    Attributes:
        skipped: The numbers of the steps that were not taken.
    """

    def __init__(self, context: StepContext) -> None:
        self.skipped: list[int] = []
        self._good = 0
        self._context = context
        context.seed_gradient = FIRST_SCALE

    def unscale(self, gradients: Sequence[torch.Tensor], step: int) -> bool:
        """Divides the gradients by the scale, in place, and says whether the step may be taken: all ranks say the same.

        Args:
            gradients: The gradients of this process, after the exchange.
            step: The number of the step.
        """
        own = [local_part(gradient) for gradient in gradients]
        torch._foreach_mul_(own, 1 / self._context.seed_gradient)
        is_finite = agree(torch.stack([torch.isfinite(gradient).all() for gradient in own]).all())
        self._good = self._good + 1 if is_finite else 0
        if not is_finite:
            self.skipped.append(step)
            self._context.seed_gradient *= BACKOFF
        elif self._good % PATIENCE == 0:
            self._context.seed_gradient *= GROWTH
        return is_finite

    def snapshot(self) -> Arrays:
        """Returns what it continues from."""
        scale = {SCALE: np.array(self._context.seed_gradient), GOOD: np.array(self._good)}
        return scale | {SKIPPED: np.array(self.skipped, np.int64)}

    def restore(self, kept: Mapping[str, np.ndarray]) -> None:
        """Continues from what `snapshot` returned, or starts anew if that is empty."""
        self._context.seed_gradient = float(kept.get(SCALE, FIRST_SCALE))
        self._good = int(kept.get(GOOD, 0))
        self.skipped = [int(step) for step in kept.get(SKIPPED, ())]


def agree(is_finite: torch.Tensor) -> bool:
    """Whether the gradients of every rank are finite; one that is not is on its own rank where gradients are sharded."""
    bad = (~is_finite).float()
    if dist.is_initialized():
        dist.all_reduce(bad)
    return not math.ceil(bad.item())


def scaler_of(run: Run, context: StepContext) -> LossScaler | None:
    """Returns the scaler of a run; None where gradients in its type do not vanish.

    Args:
        run: What is trained.
        context: Holds the scale for the backward passes.
    """
    return LossScaler(context) if run.techniques.precision == "fp16" else None

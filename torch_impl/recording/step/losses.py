"""The losses of a step: the scalars that its backward passes began with."""

from collections.abc import Sequence

import torch

from samestep.common.steps.gradient_transforms import ZEROED_PASSES
from samestep.torch_impl.recording.pieces import local_of

Roots = Sequence[tuple[torch.Tensor, torch.Tensor | None]]
"""Where a pass begins, and the gradients that it is given there."""


class StepLosses:
    """Those of one step. A script that calls `torch.autograd.grad` and then `backward` on the same loss has it once."""

    def __init__(self) -> None:
        """Has none."""
        self._of_backward: list[torch.Tensor | float] = []
        self._of_grad: list[torch.Tensor | float] = []
        self._num_zeroed = 0

    def add(self, roots: Roots, scale: torch.Tensor | None = None, is_backward: bool = True) -> None:
        """Adds the scalars that a pass begins with.

        Args:
            roots: Where it begins; a scalar that is given no gradient is a loss.
            scale: What the loss was multiplied by.
            is_backward: Whether the pass adds to the gradients of parameters.
        """
        found = self._of_backward if is_backward else self._of_grad
        for each, gradient in roots:
            if gradient is None and each.numel() == 1:
                found.append(_kept(each) if scale is None else local_of(each) / scale)

    @property
    def is_begun(self) -> bool:
        """Whether a backward pass has begun."""
        return bool(self._of_backward)

    def divide(self, count: int) -> None:
        """The gradients of several losses were averaged.

        Args:
            count: How many losses there were.
        """
        self._of_backward = [each / count for each in self._of_backward]

    def zero(self) -> None:
        """The gradients of all passes until now are set to zero."""
        self._num_zeroed = len(self._of_backward)

    def zeroed(self) -> dict[str, float]:
        """Returns how many passes the update has nothing of, as a scalar; a closure that is called again sets all to zero."""
        return {ZEROED_PASSES: float(self._num_zeroed)} if 0 < self._num_zeroed < len(self._of_backward) else {}

    def values(self) -> tuple[float, ...]:
        """Returns the losses."""
        return tuple(map(float, self._of_backward or self._of_grad))


def _kept(loss: torch.Tensor) -> torch.Tensor | float:
    """Returns what a loss is now. A GPU is not waited for."""
    return loss.item() if type(loss) is torch.Tensor and loss.is_cpu else local_of(loss).clone()

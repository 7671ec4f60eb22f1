"""The losses of a step: the scalars that its backward passes began with."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from samestep.common.steps.gradient_transforms import ZEROED_PASSES
from samestep.torch_impl.recording.pieces import local_of

Roots = Sequence[tuple[torch.Tensor, torch.Tensor | None]]
"""Where a pass begins, and the gradients that it is given there."""


class StepLosses:
    """The losses of each step in turn. Of a loss that `torch.autograd.grad` and then `backward` are called on there is one."""

    def __init__(self) -> None:
        """Has none."""
        self.forget()

    def forget(self) -> None:
        """Begins a step."""
        self.of_backward: list[torch.Tensor | float] = []
        self._of_grad: list[torch.Tensor | float] = []
        self._num_zeroed = 0

    def add(self, roots: Roots, scale: torch.Tensor | None = None, is_backward: bool = True) -> None:
        """Adds what the scalars that a pass begins with are now. A GPU is not waited for.

        Args:
            roots: Where it begins; a scalar that is given no gradient is a loss.
            scale: What the loss was multiplied by.
            is_backward: Whether the pass adds to the gradients of parameters.
        """
        found = self.of_backward if is_backward else self._of_grad
        for each, gradient in roots:
            if gradient is not None or each.numel() != 1:
                continue
            if scale is not None:
                found.append(local_of(each) / scale)
            else:
                found.append(each.item() if type(each) is torch.Tensor and each.is_cpu else local_of(each).clone())

    def divide(self, count: int) -> None:
        """The gradients of several losses were averaged.

        Args:
            count: How many losses there were.
        """
        self.of_backward = [each / count for each in self.of_backward]

    def zero(self) -> None:
        """The gradients of all passes until now are set to zero."""
        self._num_zeroed = len(self.of_backward)

    def end_step(self) -> tuple[tuple[float, ...], dict[str, float]]:
        """Begins the next step; returns the losses, and as a scalar how many passes did not contribute to the update.

        A closure that is called again sets all gradients to zero, which does not count.
        """
        found, others, zeroed = self.of_backward, self._of_grad, self._num_zeroed
        self.of_backward, self._of_grad, self._num_zeroed = [], [], 0
        scalars = {ZEROED_PASSES: float(zeroed)} if 0 < zeroed < len(found) else {}
        return tuple(map(float, found or others)), scalars


def listed(given: Any) -> list[Any]:
    """Returns what autograd is given, one or several, as a list."""
    return [given] if given is None or isinstance(given, torch.Tensor | GradientEdge) else [*given]


def roots_of(tensors: Any, gradients: Any) -> Roots:
    """Returns where a pass begins, from the arguments of autograd. An edge of the graph has no numbers.

    Args:
        tensors: One or several.
        gradients: What each is given, or one for all.
    """
    if gradients is None and isinstance(tensors, torch.Tensor):
        return [(tensors, None)]
    each, given = listed(tensors), listed(gradients)
    pairs = zip(each, given * len(each) if len(given) == 1 else given, strict=True)
    return [pair for pair in pairs if isinstance(pair[0], torch.Tensor)]

"""The losses of a step, which are the scalars with which its backward passes begin."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from samestep.common.steps.gradient_transforms import ZEROED_PASSES
from samestep.torch_impl.recording.pieces import local_of

Roots = Sequence[tuple[torch.Tensor, torch.Tensor | None]]
"""The tensors with which a pass begins, each with the gradient that it is given."""


class StepLosses:
    """Collects the losses of a step. A loss counts once even if `torch.autograd.grad` and then `backward` are called on it."""

    def __init__(self) -> None:
        """Starts with no losses."""
        self.forget()

    def forget(self) -> None:
        """Discards everything, for a new step."""
        self.of_backward: list[torch.Tensor | float] = []
        self._of_grad: list[torch.Tensor | float] = []
        self._num_zeroed = 0

    def add(self, roots: Roots, scale: torch.Tensor | None = None, is_backward: bool = True) -> None:
        """Adds the current values of the scalars with which a pass begins, without waiting for a GPU.

        Args:
            roots: The roots of the pass; a scalar without a given gradient is a loss.
            scale: The factor by which the loss was multiplied.
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
        """Divides the losses, because the gradients of several losses were averaged.

        Args:
            count: The number of losses.
        """
        self.of_backward = [each / count for each in self.of_backward]

    def zero(self) -> None:
        """Notes that the gradients of all passes so far are set to zero."""
        self._num_zeroed = len(self.of_backward)

    def end_step(self) -> tuple[tuple[float, ...], dict[str, float]]:
        """Returns the losses, and as a scalar the number of passes that did not contribute to the update; begins the next step.

        If a closure is called again and sets all gradients to zero, that does not count.
        """
        found, others, zeroed = self.of_backward, self._of_grad, self._num_zeroed
        self.of_backward, self._of_grad, self._num_zeroed = [], [], 0
        scalars = {ZEROED_PASSES: float(zeroed)} if 0 < zeroed < len(found) else {}
        return tuple(map(float, found or others)), scalars


def listed(given: Any) -> list[Any]:
    """Returns one or several arguments of autograd as a list."""
    return [given] if given is None or isinstance(given, torch.Tensor | GradientEdge) else [*given]


def roots_of(tensors: Any, gradients: Any) -> Roots:
    """Returns the roots of a pass from the arguments of autograd; edges of the graph are left out, as they have no numbers.

    Args:
        tensors: One or several tensors.
        gradients: The gradient that each tensor is given, or one for all.
    """
    if gradients is None and isinstance(tensors, torch.Tensor):
        return [(tensors, None)]
    each, given = listed(tensors), listed(gradients)
    pairs = zip(each, given * len(each) if len(given) == 1 else given, strict=True)
    return [pair for pair in pairs if isinstance(pair[0], torch.Tensor)]

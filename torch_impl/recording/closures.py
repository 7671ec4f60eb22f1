"""Optimizers that are given a closure, such as L-BFGS, which they call as often as they like."""

import weakref
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from samestep.common.steps.gradient_transforms import KEPT_CALLS
from samestep.common.steps.wrapping import followed, preceded
from samestep.torch_impl.recording.step.scalars import StepScalars
from samestep.torch_impl.recording.tensors import has_gradient

Given = tuple[tuple[Any, ...], dict[str, object]]
"""The arguments and the keywords of an optimizer's step, it first."""


def with_followed_closure(
    arguments: Given,
    closure: Callable[..., object],
    before: Callable[[Optimizer], object],
    after: Callable[[Optimizer], object],
) -> Given:
    """Follows the closure that an optimizer is given; returns the arguments with it.

    Args:
        arguments: The arguments of the step.
        closure: The one among them.
        before: Is called before each call of the closure, with the optimizer.
        after: Is called after each, with the optimizer as well.
    """
    places, keywords = arguments
    optimizer = places[0]
    seen = preceded(closure, lambda *_, **__: before(optimizer))
    seen = followed(seen, lambda *_, **__: after(optimizer))
    return ((optimizer, seen, *places[2:]), keywords) if len(places) > 1 else (places, keywords | {"closure": seen})


class ClosureCalls:
    """The calls of closures: whether each sets the gradients of the call before to zero."""

    def __init__(self) -> None:
        """Has seen none."""
        self._begun: weakref.ref[Optimizer] | None = None

    def begin(self, optimizer: Optimizer) -> None:
        """An optimizer calls its closure.

        Args:
            optimizer: The optimizer.
        """
        self._begun = weakref.ref(optimizer)

    def see_backward(self, scalars: StepScalars) -> None:
        """A backward pass begins in a call that is not the first of its step. Only the first pass of a call counts.

        Args:
            scalars: The scalars of the step.
        """
        begun, self._begun = self._begun() if self._begun else None, None
        if begun is not None and has_gradient(begun):
            scalars.count(KEPT_CALLS)

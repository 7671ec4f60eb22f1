"""Follows optimizers that are given a closure, such as L-BFGS, which may call it any number of times."""

import weakref
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from samestep.common.steps.gradient_transforms import KEPT_CALLS
from samestep.common.steps.wrapping import followed, preceded
from samestep.torch_impl.recording.step.scalars import StepScalars
from samestep.torch_impl.recording.tensors import has_gradient

Given = tuple[tuple[Any, ...], dict[str, object]]
"""The positional and keyword arguments of an optimizer's step, with the optimizer first."""


def with_followed_closure(
    arguments: Given,
    closure: Callable[..., object],
    before: Callable[[Optimizer], object],
    after: Callable[[Optimizer], object],
) -> Given:
    """Wraps the closure of an optimizer's step so its calls are followed; returns the arguments with the wrapped closure.

    Args:
        arguments: The arguments of the step.
        closure: The closure among the arguments.
        before: Called with the optimizer before each call of the closure.
        after: Called with the optimizer after each call of the closure.
    """
    places, keywords = arguments
    optimizer = places[0]
    seen = preceded(closure, lambda *_, **__: before(optimizer))
    seen = followed(seen, lambda *_, **__: after(optimizer))
    return ((optimizer, seen, *places[2:]), keywords) if len(places) > 1 else (places, keywords | {"closure": seen})


class ClosureCalls:
    """Finds out whether each call of a closure sets the gradients of the previous call to zero."""

    def __init__(self) -> None:
        """Starts with no call seen."""
        self._begun: weakref.ref[Optimizer] | None = None

    def begin(self, optimizer: Optimizer) -> None:
        """Notes that an optimizer calls its closure.

        Args:
            optimizer: The optimizer.
        """
        self._begun = weakref.ref(optimizer)

    def see_backward(self, scalars: StepScalars) -> None:
        """Notes a backward pass in a call that is not the first of its step; only the first pass of a call counts.

        Args:
            scalars: The scalars of the step.
        """
        begun, self._begun = self._begun() if self._begun else None, None
        if begun is not None and has_gradient(begun):
            scalars.count(KEPT_CALLS)

"""Optimizers that are given a closure, such as L-BFGS, which they call as often as they like."""

import functools
from collections.abc import Callable

Given = tuple[tuple[object, ...], dict[str, object]]
"""The arguments and the keywords of an optimizer's step, it first."""


def with_followed_closure(arguments: Given, closure: Callable[..., object], after: Callable[[], object]) -> Given:
    """Follows the closure that an optimizer is given; returns the arguments with it.

    Args:
        arguments: The arguments of the step.
        closure: The one among them.
        after: Is called after each call of the closure.
    """
    places, keywords = arguments

    @functools.wraps(closure)
    def followed(*own: object, **named: object) -> object:
        result = closure(*own, **named)
        after()
        return result

    return (
        ((places[0], followed, *places[2:]), keywords)
        if len(places) > 1
        else (places, keywords | {"closure": followed})
    )

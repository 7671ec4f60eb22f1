"""Optimizers that are given a closure, such as L-BFGS, which they call as often as they like."""

import functools
from collections.abc import Callable

Given = tuple[tuple[object, ...], dict[str, object]]
"""The arguments and the keywords of an optimizer's step, it first."""


def with_followed_closure(arguments: Given, after: Callable[[], object]) -> Given | None:
    """Follows the closure that an optimizer is given; returns the arguments with it, or None if there is none.

    Args:
        arguments: The arguments of the step.
        after: Is called after each call of the closure.
    """
    places, keywords = arguments
    closure = places[1] if len(places) > 1 else keywords.get("closure")
    if not callable(closure):
        return None

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

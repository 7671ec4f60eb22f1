"""Wraps a function of a library so that something is called before it or after it."""

import functools
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Wrap(Protocol):
    """Takes a function and returns another one in its place, such as a hook that lets no error of ours end the script."""

    def __call__(self, function: Callable[P, T], /) -> Callable[P, T | None]:
        """Returns the function that takes its place."""


def preceded(original: Callable[P, T], before: Callable[..., object]) -> Callable[P, T]:
    """Returns a function that calls another one with the same arguments first.

    Args:
        original: The function.
        before: What is called first.
    """

    @functools.wraps(original)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        before(*args, **kwargs)
        return original(*args, **kwargs)

    return call


def followed(original: Callable[P, T], after: Callable[..., object]) -> Callable[P, T]:
    """Returns a function that calls another one with its result, and then the same arguments, before it returns.

    Args:
        original: The function.
        after: What is called then.
    """

    @functools.wraps(original)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        result = original(*args, **kwargs)
        after(result, *args, **kwargs)
        return result

    return call

"""Wraps a library's function so that another function is called before or after it."""

import functools
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Wrap(Protocol):
    """Takes a function and returns its replacement, such as a hook whose errors do not end the script."""

    def __call__(self, function: Callable[P, T], /) -> Callable[P, T | None]:
        """Returns the replacement of a function."""


def preceded(original: Callable[P, T], before: Callable[..., object]) -> Callable[P, T]:
    """Returns a function that first calls another function with the same arguments.

    Args:
        original: The function.
        before: The function that is called first.
    """

    @functools.wraps(original)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        before(*args, **kwargs)
        return original(*args, **kwargs)

    return call


def followed(original: Callable[P, T], after: Callable[..., object]) -> Callable[P, T]:
    """Returns a function that, before it returns, calls another function with its result and the same arguments.

    Args:
        original: The function.
        after: The function that is called afterwards.
    """

    @functools.wraps(original)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        result = original(*args, **kwargs)
        after(result, *args, **kwargs)
        return result

    return call

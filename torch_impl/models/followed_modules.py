"""Follows the calls of a model's modules."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

from torch import nn

Follow = Callable[..., object]
"""A function of the path of a module that is called, its positional and named arguments, and after the call its result."""


@contextlib.contextmanager
def following(
    modules: Iterable[tuple[str, nn.Module]], enter: Follow | None = None, leave: Follow | None = None
) -> Iterator[None]:
    """Makes a context in which functions are told of every call of some modules.

    Args:
        modules: The modules, each with its path.
        enter: What is called before each call.
        leave: What is called after it, unless it fails.
    """
    with contextlib.ExitStack() as hooks:
        for path, module in modules:
            if enter is not None:
                hooks.callback(module.register_forward_pre_hook(_hook(enter, path), with_kwargs=True).remove)
            if leave is not None:
                hooks.callback(module.register_forward_hook(_hook(leave, path), with_kwargs=True).remove)
        yield


def _hook(follow: Follow, path: str) -> Callable[..., None]:
    """Returns a hook, which leaves everything as it is."""

    def hook(_: nn.Module, *seen: object) -> None:
        follow(path, *seen)

    return hook

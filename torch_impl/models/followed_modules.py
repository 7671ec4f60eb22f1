"""Follows the calls of a model's modules."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

from torch import nn

Follow = Callable[..., object]
"""Takes the path of a called module, its positional and keyword arguments and, after the call, its result."""


@contextlib.contextmanager
def following(
    modules: Iterable[tuple[str, nn.Module]], enter: Follow | None = None, leave: Follow | None = None
) -> Iterator[None]:
    """Makes a context in which functions are called before and after every call of some modules.

    Args:
        modules: The modules, each with its path.
        enter: The function to call before each call of a module.
        leave: The function to call after it, unless the call fails.
    """
    with contextlib.ExitStack() as hooks:
        for path, module in modules:
            if enter is not None:
                hooks.callback(module.register_forward_pre_hook(_hook(enter, path), with_kwargs=True).remove)
            if leave is not None:
                hooks.callback(module.register_forward_hook(_hook(leave, path), with_kwargs=True).remove)
        yield


def _hook(follow: Follow, path: str) -> Callable[..., None]:
    """Returns a hook that calls a function and changes nothing."""

    def hook(_: nn.Module, *seen: object) -> None:
        follow(path, *seen)

    return hook

"""Disables the random draws of a user's forward pass: each is replaced by its mean, which depends on no seed and no shard."""

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping

Plain = Callable[..., object]
Watcher = Callable[[Plain, tuple[object, ...], Mapping[str, object]], None]
"""A function that is called at every draw: (original function, its arguments, its keyword arguments) -> None."""
Still = Callable[..., object]
"""A function that replaces a draw: (original function, *its arguments) -> what is returned instead."""


class Draws:
    """Holds the random draws of this process still, or lets them run.

    Attributes:
        are_still: Whether draws are held still; every function that draws checks it.
    """

    def __init__(self) -> None:
        self.are_still = False
        self._are_installed = False
        self._watcher: Watcher | None = None

    def install(self, stills: Mapping[tuple[object, str], Still]) -> None:
        """Makes the functions that draw check `are_still`; must be called before the user's file is imported.

        Args:
            stills: (module or class, the names of its functions that draw) -> the function that replaces a draw.
        """
        if self._are_installed:
            return
        self._are_installed = True
        made: dict[int, tuple[Plain, Plain]] = {}
        for (owner, names), still in stills.items():
            for name in names.split():
                if (plain := getattr(owner, name, None)) is not None:
                    made[id(plain)] = plain, self._either(plain, still)
                    setattr(owner, name, made[id(plain)][1])
        libraries = {getattr(owner, "__module__", None) or getattr(owner, "__name__", "") for owner, _ in stills}
        _replace(made, {name.partition(".")[0] for name in libraries})

    def _either(self, plain: Plain, still: Still) -> Plain:
        @functools.wraps(plain)
        def drawn(*args: object, **named: object) -> object:
            if self._watcher is not None:
                self._watcher(plain, args, named)
            return still(plain, *args, **named) if self.are_still else plain(*args, **named)

        return drawn

    @contextlib.contextmanager
    def held(self, still: bool = True) -> Iterator[None]:
        """Returns a context in which draws are held still.

        Args:
            still: Whether draws are held still in the context, or run.
        """
        before, self.are_still = self.are_still, still
        try:
            yield
        finally:
            self.are_still = before

    @contextlib.contextmanager
    def watched(self, watcher: Watcher) -> Iterator[None]:
        """Returns a context in which a function is called at every draw."""
        self._watcher = watcher
        try:
            yield
        finally:
            self._watcher = None


def _replace(made: Mapping[int, tuple[Plain, Plain]], libraries: Collection[str]) -> None:
    """Replaces functions in modules that took them by name earlier, e.g. by `from torch import randn`.

    Args:
        made: By the identity of each function: the function, and its replacement.
        libraries: The libraries of these functions, whose own modules stay unchanged.
    """
    for module in list(sys.modules.values()):
        if not isinstance(module, types.ModuleType) or module.__name__.partition(".")[0] in libraries:
            continue
        for name, (plain, either) in [(n, made[id(v)]) for n, v in list(vars(module).items()) if id(v) in made]:
            if vars(module)[name] is plain:
                setattr(module, name, either)


DRAWS = Draws()
"""The draws of this process. They cannot be passed as an argument: a user's file imports the functions that draw from the
library, keeps them, and calls them without an argument of ours. So the state that they check is as global as the library, and
the last setting applies to the whole process.
"""

"""Reads pickles that somebody else wrote as symbols: each name stays a name, so nothing is imported or called."""

import io
import pickle
from collections.abc import Callable
from typing import ClassVar, NoReturn

from samestep.common.files.reading import Unreadable


class Symbol:
    """An object in a pickle: its name, the arguments with which it was made, and the state that it was given.

    Attributes:
        name: Its class or function, as in `torch.Size`.
        arguments: The arguments with which that was called.
        state: The state that was set afterwards; None if none was.
    """

    name: str
    arguments: tuple[object, ...]
    state: object = None

    def __new__(cls, *arguments: object) -> "Symbol":
        """Notes the arguments."""
        made = object.__new__(cls)
        made.arguments = arguments
        return made

    def __init__(self, *arguments: object) -> None:
        """Does nothing more."""

    def __setstate__(self, state: object) -> None:
        """Notes the state."""
        self.state = state


class _Reader(pickle._Unpickler):
    """Python's pickle reader without C code, whose memory the bytes bound. The one in C makes room for what an index claims."""

    stack: list[object]
    append: Callable[[object], None]
    pop_mark: Callable[[], list[object]]

    def find_class(self, module: str, name: str) -> type[Symbol]:
        """Makes a class of symbols with a name."""
        return type(name, (Symbol,), {"name": f"{module}.{name}"})

    def persistent_load(self, pid: object) -> object:
        """Returns the id of an object that is not in the pickle."""
        return pid

    def load_tuple(self) -> None:
        """Makes a list in place of a tuple. Hashing nested tuples can take years, and a list cannot be a key."""
        items = self.pop_mark()
        self.append(items)

    def _load_last(self, count: int) -> None:
        self.stack[-count:] = [self.stack[-count:]]

    def _refuse(self) -> NoReturn:
        raise Unreadable("its pickle refers to extensions or buffers")

    dispatch: ClassVar[dict[int, Callable[..., None]]] = {
        **pickle._Unpickler.dispatch,
        pickle.TUPLE[0]: load_tuple,
        pickle.TUPLE1[0]: lambda self: self._load_last(1),
        pickle.TUPLE2[0]: lambda self: self._load_last(2),
        pickle.TUPLE3[0]: lambda self: self._load_last(3),
        **dict.fromkeys((pickle.EXT1[0], pickle.EXT2[0], pickle.EXT4[0], pickle.NEXT_BUFFER[0]), _refuse),
    }


def read_symbols(data: bytes) -> object:
    """Reads a pickle: numbers, text, lists and dicts as they are, tuples as lists, all else as symbols.

    Args:
        data: The pickle, of which the caller has bounded the size.

    Raises:
        Unreadable: It is damaged.
    """
    try:
        return _Reader(io.BytesIO(data)).load()
    except Unreadable:
        raise
    except Exception as error:  # hostile bytes raise a dozen kinds of errors
        raise Unreadable(f"it is not a pickle that can be read ({type(error).__name__})") from None


def symbol(found: object, name: str) -> Symbol:
    """Returns what was read if it is the expected symbol.

    Args:
        found: What was read.
        name: The last part of its name.

    Raises:
        Unreadable: It is not that symbol.
    """
    if not isinstance(found, Symbol) or found.name.rpartition(".")[2] != name:
        raise Unreadable(f"it has something else where a {name} belongs")
    return found


def whole_numbers(found: object) -> tuple[int, ...]:
    """Reads whole numbers from 0 up: a shape, an offset, or strides.

    Args:
        found: What was read: a list, or a symbol of one.

    Raises:
        Unreadable: It is something else.
    """
    values = found.arguments[0] if isinstance(found, Symbol) and found.arguments else found
    if not isinstance(values, list | tuple) or any(type(value) is not int or value < 0 for value in values):
        raise Unreadable("it has something else where a shape belongs")
    return tuple(values)

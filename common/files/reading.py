"""Reads files that somebody else may have written: only plain files, of bounded size and depth.

Anyone who may write a file may put a pipe, a device or 100,000 brackets in its place. Code with its own `open` would then wait
forever, or end in a traceback, so all code reads such files with this module. A test finds code that does not.
"""

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

MOST_BYTES = 2**20
"""The most bytes of a file, unless its reader allows more."""
MOST_DEPTH = 64
"""How deep objects and lists may be nested; a trace, the deepest of our files, has five levels."""
_TOO_DEEP = f"it is deeper than {MOST_DEPTH} levels"
_CHUNK_BYTES = 2**20
_PART = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_DEEP_KEY = re.compile(rf"(?:\.[ \t]*{_PART}[ \t]*){{{MOST_DEPTH}}}")
"""The most parts of a TOML key. For a key of 100,000 parts, tomllib (Python 3.11) hashes every prefix, which takes minutes."""
Value = TypeVar("Value")


class Unreadable(Exception):
    """A file cannot be read; the message says why, as a clause."""


def memory_bytes() -> int:
    """Returns the memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_memory(needed: int) -> None:
    """Refuses to read more bytes than fit into this machine's memory.

    Raises:
        Unreadable: The machine has too little memory.
    """
    if needed > memory_bytes():
        raise Unreadable(f"it takes {needed / 2**30:.3g} GiB, and this machine has {memory_bytes() / 2**30:.3g}")


@contextlib.contextmanager
def open_plain(path: Path | str) -> Iterator[BufferedReader]:
    """Opens a plain file, and refuses a pipe or a device, which may have no end.

    Raises:
        Unreadable: The file does not exist, is not a plain file, or may not be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for somebody to write
    except FileNotFoundError:
        raise Unreadable("there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise Unreadable(getattr(error, "strerror", None) or "no file can have such a name") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unreadable("it is not a plain file")
    with os.fdopen(descriptor, "rb") as file:
        try:
            yield file
        except OSError as error:  # a disk that fails
            raise Unreadable(error.strerror or "it cannot be read") from None


def read_bytes(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes:
    """Reads a file whole.

    Args:
        path: The file.
        most_bytes: A larger one is refused.

    Raises:
        Unreadable: It cannot be read, or is larger.
    """
    too_large = Unreadable(f"it has more than {most_bytes} bytes")
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise too_large
        content = bytearray()
        while chunk := file.read(_CHUNK_BYTES):  # it may grow meanwhile
            content += chunk
            if len(content) > most_bytes:
                raise too_large
        return bytes(content)


def read_text(path: Path | str, most_bytes: int = MOST_BYTES, encoding: str = "utf-8") -> str:
    """Reads a text file.

    Args:
        path: The file.
        most_bytes: A larger one is refused.
        encoding: The encoding of its characters.

    Raises:
        Unreadable: It cannot be read, is larger, or holds other bytes.
    """
    try:
        return read_bytes(path, most_bytes).decode(encoding)
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not {encoding}: byte {error.start}") from None


def read_end(path: Path | str, start: int = 0, most_bytes: int = MOST_BYTES) -> str:
    """Reads the end of a log, which may hold any bytes.

    Args:
        path: The file.
        start: Where to start, in bytes.
        most_bytes: How much of the end is read.

    Raises:
        Unreadable: It cannot be read.
    """
    with open_plain(path) as file:
        file.seek(max(start, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes).decode(errors="replace")


def read_sha256(path: Path | str) -> str:
    """Computes the SHA-256 digest of a file of any size.

    Raises:
        Unreadable: It cannot be read.
    """
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path | str, most_bytes: int = MOST_BYTES) -> object:
    """Reads a JSON file.

    Args:
        path: The file.
        most_bytes: A larger one is refused.

    Raises:
        Unreadable: It cannot be read, or holds something else.
    """
    return parse_json(read_bytes(path, most_bytes))


def parse_json(text: str | bytes) -> object:
    """Parses JSON that somebody else wrote.

    Raises:
        Unreadable: The text is not JSON, or is nested too deeply.
    """
    try:
        brackets = ("{", "[") if isinstance(text, str) else (b"{", b"[")
        is_shallow = sum(map(text.count, brackets)) <= MOST_DEPTH  # type: ignore[arg-type]
        return json.loads(text) if is_shallow else _shallow(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not JSON ({type(error).__name__})") from None


def read_toml(path: Path | str, most_bytes: int = MOST_BYTES) -> dict[str, object]:
    """Reads a TOML file.

    Args:
        path: The file.
        most_bytes: A larger one is refused.

    Raises:
        Unreadable: It cannot be read, or holds something else; the message names line and column.
    """
    import tomllib  # here: few commands read a TOML file

    text = read_text(path, most_bytes)
    if _DEEP_KEY.search(text):
        raise Unreadable(_TOO_DEEP)
    try:
        return _shallow(tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not TOML: {error}") from None


def _shallow(value: Value) -> Value:
    """Returns the value, unless it is nested so deeply that later code could run out of stack."""
    level: list[object] = [value]
    for _ in range(MOST_DEPTH):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
        if not level:
            return value
    raise Unreadable(_TOO_DEEP)

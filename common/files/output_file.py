"""A file that a user named for a result: checked before the result is computed, and written completely or not at all."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.writing import replacing


def check_output(path: Path, flag: str = "-o") -> None:
    """Refuses a file that cannot be written; an existing file is not changed.

    Args:
        path: The file.
        flag: The flag that names it.

    Raises:
        ConfigError: It cannot be written.
    """
    with _told(path, flag), contextlib.suppress(_Enough):
        if not _stays(path) or not path.exists():  # or a link to a file that is not there yet
            with replacing(path.resolve(), is_users=True):
                raise _Enough
        if not stat.S_ISFIFO(path.stat().st_mode):  # its reader would take closing it for its end
            with os.fdopen(_open_as_it_is(path), "wb", buffering=0) as file:
                file.write(b"")  # which /dev/full refuses


def check_named(path: str | Path, flag: str = "-o") -> None:
    """Refuses the dash that stands for stdout in other programs; here it would be the name of a file or a folder.

    Args:
        path: The file or the folder.
        flag: The flag that names it.

    Raises:
        ConfigError: It is a dash.
    """
    if str(path) == "-":
        raise ConfigError(f"{flag} - is not stdout, and the result goes into a file or a folder; name one.")


def save(text: str, path: Path, flag: str = "-o") -> None:
    """Writes a report, completely or not at all; links and devices are written to and not replaced.

    Args:
        text: The report.
        path: Its file.
        flag: The flag that names it.

    Raises:
        ConfigError: It cannot be written.
    """
    content = text.encode(errors="backslashreplace")  # a path may have bytes that are not characters
    with _told(path, flag):
        if _stays(path):
            with os.fdopen(_open_as_it_is(path, os.O_TRUNC | os.O_CREAT), "wb") as file:
                file.write(content)
            return
        with replacing(path, is_users=True) as file:
            file.write(content)


class _Enough(Exception):
    """Ends a check before anything is written, since the file can be written."""


def _stays(path: Path) -> bool:
    """Returns whether something has the file's name that a new file must not replace, such as a link or a device."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def _open_as_it_is(path: Path, how: int = 0) -> int:
    """Opens a path for writing without replacing it. A pipe without a reader is refused, while `open` would wait for one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | how, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


@contextlib.contextmanager
def _told(path: Path, flag: str) -> Iterator[None]:
    check_named(path, flag)
    try:
        yield
    except OSError as error:
        why = "it is a pipe, and nobody reads it" if error.errno == errno.ENXIO else error.strerror
        raise ConfigError(f"{flag} {path} cannot be written ({why}); name a file in a directory that exists.") from None

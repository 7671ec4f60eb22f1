"""Locks on existing files and directories: on one byte of a file for each process of a run, and on directories.

Every lock ends with the process that holds it, however that process ends.

The package filelock cannot replace them, nor the other calls of `fcntl.flock`. It makes a file next to what it locks, it has no
shared locks of this kind, and a process cannot see whether a lock is held without taking it.
"""

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from samestep.common.errors import ConfigError

_LOCK = "hhqqi"
"""The kernel's `struct flock`: type, whence, start, length, process."""


def claim_place(descriptor: int, index: int) -> None:
    """Claims a place for as long as the file stays open.

    Args:
        descriptor: The descriptor of the file, open for writing.
        index: The place.

    Raises:
        BlockingIOError: Another process holds it.
        OSError: The file system has no locks.
    """
    lock = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, index, 1, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)


def is_any_claimed(descriptor: int) -> bool:
    """Returns whether any process holds a place of a file.

    Args:
        descriptor: The descriptor of the file.
    """
    wanted = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    found, *_ = struct.unpack(_LOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, wanted))
    return found != fcntl.F_UNLCK


@contextlib.contextmanager
def sole_user(directory: Path, use: str, otherwise: str = "") -> Iterator[None]:
    """Keeps two commands from using a directory at the same time.

    Args:
        directory: The directory.
        use: What is done with it, as in "measured".
        otherwise: What a second command may do instead of waiting, as the end of a sentence.

    Raises:
        ConfigError: Another command uses it, or it cannot be opened.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be opened ({error.strerror}); name another directory.") from None
    try:
        if not _is_held(descriptor, directory):
            raise ConfigError(f"{directory} is being {use} by another command; wait until that has ended{otherwise}.")
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def alone_in(directory: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Lets one command at a time do something in a directory; the others wait.

    Args:
        directory: The directory.
        on_wait: Called before it waits.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # the file system has no locks of directories
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_held(descriptor: int, directory: Path) -> bool:
    """Takes the lock of a directory; returns whether that succeeded and the directory still exists."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(directory))
    except (BlockingIOError, FileNotFoundError):  # the command that used it may have removed it at its end
        return False
    except OSError:  # the file system has no locks of directories
        return True

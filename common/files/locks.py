"""The places that the processes of a run hold: a byte each of a file that is there anyway, until the process ends.

filelock is no substitute, here and where `fcntl.flock` is called: it makes a file of its own beside what it locks, it has no
shared lock of the kind, and nobody can ask who holds one without taking it.
"""

import fcntl
import os
import struct

_LOCK = "hhqqi"
"""The kernel's `struct flock`: type, whence, start, length, process."""


def claim_place(descriptor: int, index: int) -> None:
    """Holds a place for as long as the file stays open.

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

"""A cache of directories with a size limit. The least recently used are removed first, and those in use stay."""

import contextlib
import dataclasses
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from samestep.common.errors import WorkerFailed
from samestep.common.files.removing import bytes_below, discard_all, find_written
from samestep.common.files.writing import reopen

LIMIT_BYTES = 2**30
"""The most bytes of the oracle's curves. An entry in use is not evicted, so a single one may be larger."""
LOCK = "lock"
"""The file that is locked in place of its directory, since a network file system cannot lock a directory."""
_KEY = re.compile("[0-9a-f]{24}")
_HELD: list[int] = []
"""The open lock of the entry that this process uses."""


@dataclasses.dataclass(frozen=True)
class CacheEntry:
    """Something that samestep keeps on disk.

    Attributes:
        path: A file or a directory.
        bytes: The bytes of all its files that are ours.
        used: When it was last used, in seconds since the epoch.
    """

    path: Path
    bytes: int
    used: float


def find_entries(directories: Iterable[Path]) -> list[CacheEntry]:
    """Lists directories, the least recently used first; those that vanish meanwhile are left out."""
    found = []
    for path in directories:
        with contextlib.suppress(OSError):
            found.append(CacheEntry(path, bytes_below(path), path.stat().st_mtime))
    return sorted(found, key=lambda entry: entry.used)


def find_cached(folder: Path) -> list[CacheEntry]:
    """Finds the entries of a cache, the least recently used first: the directories that we made and named by a key."""
    return find_entries(path for path, _ in find_written(folder, depth=1) if _KEY.fullmatch(path.name))


def hold(path: Path) -> bool:
    """Marks an entry as used now, and keeps it from eviction until this process holds another one or ends.

    Returns:
        Whether the entry exists.
    """
    while _HELD:
        os.close(_HELD.pop())
    with contextlib.suppress(OSError, WorkerFailed):  # no such entry, no locks on this disk, or another user's cache
        _HELD.append(reopen(path / LOCK))
        fcntl.flock(_HELD[0], fcntl.LOCK_SH)
        os.utime(path)
    return path.is_dir()  # another process may have evicted it before the lock was ours


def evict(folder: Path, limit: int = LIMIT_BYTES) -> list[CacheEntry]:
    """Removes entries of a cache until the rest fits into a limit; entries that a process holds stay.

    Args:
        folder: The folder that holds one directory for each entry.
        limit: The limit, in bytes.

    Returns:
        The entries that were removed.
    """
    removed = []
    with contextlib.suppress(OSError, WorkerFailed), _locked(folder, fcntl.LOCK_EX):  # one process at a time
        entries = find_cached(folder)
        excess = sum(entry.bytes for entry in entries) - limit
        for entry in entries:
            if excess > 0 and _remove(entry.path):
                excess -= entry.bytes
                removed.append(entry)
    return removed


def _remove(path: Path) -> bool:
    try:
        with _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB):
            discard_all(path)
    except (OSError, WorkerFailed):
        return False  # in use
    return True


@contextlib.contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    descriptor = reopen(directory / LOCK)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)

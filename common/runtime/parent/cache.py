"""A cache of directories with a limit: what has not been used for longest goes first, what is in use stays."""

import contextlib
import dataclasses
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

LIMIT_BYTES = 2**30
"""Of the oracle's curves. An entry in use is not evicted, so a single one may be larger."""
_HELD: list[int] = []
"""The open lock of the entry that this process uses."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """Something that is kept on disk.

    Attributes:
        path: A file or a directory.
        bytes: Of all its files.
        used: When it was last used, in seconds since the epoch.
    """

    path: Path
    bytes: int
    used: float


def find_entries(paths: Iterable[Path]) -> list[Entry]:
    """Looks at files and directories, the least recently used first; those that vanish meanwhile are left out."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            files = [path, *path.rglob("*")] if path.is_dir() else [path]
            sizes = [file.lstat().st_size for file in files if not file.is_dir()]
            found.append(Entry(path, sum(sizes), path.stat().st_mtime))
    return sorted(found, key=lambda entry: entry.used)


def hold(path: Path) -> bool:
    """Marks an entry as used now, and keeps it from eviction until this process holds another one or ends.

    Returns:
        Whether it is there.
    """
    while _HELD:
        os.close(_HELD.pop())
    with contextlib.suppress(OSError):  # not there; or a disk without locks, or a cache that belongs to someone else
        _HELD.append(_open_lock(path))
        fcntl.flock(_HELD[0], fcntl.LOCK_SH)
        os.utime(path)
    return path.is_dir()  # another process may have evicted it before the lock was ours


def evict(folder: Path, limit: int = LIMIT_BYTES) -> list[Entry]:
    """Removes entries of a cache until the others fit into a limit; those that a process holds stay.

    Args:
        folder: Holds one directory for each entry.
        limit: In bytes.

    Returns:
        What was removed.
    """
    removed = []
    with contextlib.suppress(OSError), _locked(folder, fcntl.LOCK_EX):  # one process at a time
        entries = find_entries(path for path in folder.iterdir() if path.is_dir())
        excess = sum(entry.bytes for entry in entries) - limit
        for entry in entries:
            if excess > 0 and _remove(entry.path):
                excess -= entry.bytes
                removed.append(entry)
    return removed


def _remove(path: Path) -> bool:
    aside = path.with_name(f"evicted-{os.getpid()}")
    try:
        with _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB):
            os.rename(path, aside)  # nobody finds half an entry
        shutil.rmtree(aside)
    except OSError:
        return False  # in use
    return True


@contextlib.contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    descriptor = _open_lock(directory)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _open_lock(directory: Path) -> int:
    """Opens a file to lock: on a network's disk a directory cannot be locked."""
    return os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o666)

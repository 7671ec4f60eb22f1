"""`written.jsonl`: what samestep wrote into a directory, so that nothing else is ever removed from it.

Each file or folder gets a line when it is made, with its name, its inode and, once a file is complete, its bytes. The last line
of a name counts, and the file of that name is ours as long as it matches the line. An earlier line announces what is about to
be made: a process that is killed between the two leaves an empty file or folder, which is ours as well. The first line
describes the list itself, so nothing in a copy of the directory is ours. No link is followed, and a list that another user
wrote is not trusted.
"""

import contextlib
import dataclasses
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

LIST = "written.jsonl"
HERE = "."
"""The name of the directory in its own list, if samestep made it."""
_MOST_BYTES = 2**26
_UNMADE = 0
"""Replaces the inode in the line of what is about to be made."""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


@dataclasses.dataclass(frozen=True)
class WrittenEntry:
    """A line of a list.

    Attributes:
        name: Below the directory, as in `model/initial.npz`.
        inode: The inode of what was made; 0 in a line written before that, negative in one written before it takes its name.
        bytes: The size of a complete file; None while it is written, and for a folder.
        is_folder: Whether the entry is a folder.
    """

    name: str
    inode: int
    bytes: int | None = None
    is_folder: bool = False

    def matches(self, status: os.stat_result) -> bool:
        """Returns whether a file or folder with this status (of `lstat`) is the one that was made."""
        if self.inode == _UNMADE:  # a folder is removed only if it is empty
            is_made = status.st_uid == os.geteuid() and (self.is_folder or status.st_nlink == 1)
        else:
            is_made = status.st_ino == abs(self.inode)
        kind = stat.S_ISDIR if self.is_folder else stat.S_ISREG
        return kind(status.st_mode) and is_made and self.bytes in (None, status.st_size)


Written = Mapping[str, WrittenEntry]
"""Name -> the last entry of that name."""


@contextlib.contextmanager
def opened(directory: Path, follow: bool = True) -> Iterator[int]:
    """Opens a directory to find files in it, even if its path changes meanwhile.

    Args:
        directory: The directory.
        follow: Whether it may be a link; the folders above it always may.

    Raises:
        OSError: There is none.
    """
    descriptor = os.open(directory, _FOLDER | (0 if follow else os.O_NOFOLLOW))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def parent_of(root: int, name: str) -> Iterator[tuple[int, str]]:
    """Opens the folder of a file without following a link; also returns the file's name there.

    Args:
        root: The open directory.
        name: The file, below it.

    Raises:
        OSError: A folder on the way is missing, or is a link.
    """
    *folders, leaf = PurePosixPath(name).parts or (HERE,)
    with contextlib.ExitStack() as stack:
        for folder in folders:
            root = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=root)
            stack.callback(os.close, root)
        yield root, leaf


_TO_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def begin(root: int) -> None:
    """Starts the list of a directory, or continues the one that is there if it is ours.

    Args:
        root: The open directory.

    Raises:
        OSError: It cannot be written, or something else has its name.
    """
    try:
        descriptor = os.open(LIST, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=root)
    except FileExistsError:
        if read(root) is not None:
            return
        descriptor = os.open(LIST, _TO_APPEND, dir_fd=root)
        status = os.fstat(descriptor)
        if not _is_own(status) or status.st_size:  # an empty one was left by a process that was killed here
            os.close(descriptor)
            raise
    try:
        os.write(descriptor, _line(WrittenEntry(LIST, os.fstat(descriptor).st_ino)))
    finally:
        os.close(descriptor)


def note(root: int, entry: WrittenEntry) -> None:
    """Adds a line to the list of a directory, if it has one. What cannot be noted is never removed, which does no harm.

    Args:
        root: The open directory.
        entry: What was made.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(LIST, _TO_APPEND, dir_fd=root)
        try:
            if _is_own(os.fstat(descriptor)):
                os.write(descriptor, _line(entry))
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def announced(root: int, name: str, is_folder: bool = False, complete: os.stat_result | None = None) -> Iterator[None]:
    """Notes in the list of a directory what is about to be made; what somebody else makes there meanwhile is not ours.

    Args:
        root: The open directory.
        name: Its name below the directory, which must not exist yet.
        is_folder: Whether it will be a folder.
        complete: The status of a complete file that is about to take the name; a file of ours with that name stays ours until
            then.
    """
    entry = WrittenEntry(name, _UNMADE, None if is_folder else 0, is_folder)
    if complete is not None:
        entry = WrittenEntry(name, -complete.st_ino, complete.st_size)
    note(root, entry)
    try:
        yield
    except FileExistsError:
        note(root, dataclasses.replace(entry, bytes=-1))
        raise
    if complete is not None:
        note(root, dataclasses.replace(entry, inode=complete.st_ino))


def read(root: int) -> Written | None:
    """Reads the list of a directory, without what was only announced; None if it has no list that this user wrote.

    Args:
        root: The open directory.
    """
    return None if (lines := _lines(root)) is None else _made(lines)


def _made(lines: list[WrittenEntry]) -> Written:
    return {entry.name: entry for entry in lines if entry.inode > _UNMADE}


def _lines(root: int) -> list[WrittenEntry] | None:
    try:
        descriptor = os.open(LIST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not _is_own(status) or status.st_size > _MOST_BYTES:
            return None
        entries = [_entry(line) for line in file.read(status.st_size).splitlines()]  # a limit would be allocated
    if not entries or entries[0] != WrittenEntry(LIST, status.st_ino):
        return None
    return [entry for entry in entries if entry is not None]


def present(root: int, is_changed: bool = False) -> dict[str, os.stat_result] | None:
    """Finds what is ours in a directory, with its status; None if the directory has no list.

    Args:
        root: The open directory.
        is_changed: Whether a file still counts if it was replaced, or has other bytes by now.
    """
    if (lines := _lines(root)) is None:
        return None
    found = {}
    for entry in dict.fromkeys((*_made(lines).values(), *{entry.name: entry for entry in lines}.values())):
        with contextlib.suppress(OSError), parent_of(root, entry.name) as (parent, leaf):
            status = os.stat(leaf, dir_fd=parent, follow_symlinks=False)
            if entry.matches(status) or (is_changed and entry.inode > _UNMADE and stat.S_ISREG(status.st_mode)):
                found[entry.name] = status
    return found


def seal(directory: Path, name: str | None = None) -> None:
    """Notes the bytes of files that were open until now. A file that somebody changes after that is no longer ours.

    Args:
        directory: The directory of the files.
        name: The file that was written; by default all files whose bytes are not known yet.
    """
    with contextlib.suppress(OSError), opened(directory) as root:
        for entry in (read(root) or {}).values():
            if entry.name == name or (name is None and entry.bytes is None and entry.name != LIST):
                with contextlib.suppress(OSError), parent_of(root, entry.name) as (parent, leaf):
                    status = os.stat(leaf, dir_fd=parent, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_ino == entry.inode:
                        note(root, dataclasses.replace(entry, bytes=status.st_size))


def unseal(path: Path) -> None:
    """Notes that a file of ours is about to grow, unless somebody has changed it since it was sealed."""
    with contextlib.suppress(OSError), opened(path.parent) as root:
        if path.name in (present(root) or {}) and (entry := (read(root) or {}).get(path.name)):
            note(root, dataclasses.replace(entry, bytes=None))


def _is_own(status: os.stat_result) -> bool:
    """Returns whether a list is a plain file of this user's, under one name only."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid()


def _line(entry: WrittenEntry) -> bytes:
    return json.dumps(dataclasses.asdict(entry)).encode() + b"\n"


def _entry(line: bytes) -> WrittenEntry | None:
    """Parses a line; None if it is damaged or names something outside the directory."""
    try:
        entry = WrittenEntry(**json.loads(line))
        parts = PurePosixPath(os.fsdecode(os.fsencode(entry.name))).parts
    except (ValueError, TypeError, RecursionError):
        return None
    types = (type(entry.inode), type(entry.bytes), type(entry.is_folder))
    if types not in ((int, int, bool), (int, type(None), bool)) or "\0" in entry.name:
        return None
    return None if {"/", "//", ".."} & {*parts} else entry

"""Writes files into samestep's own directories: only plain files that it made itself, and without following links.

Somebody else may be able to write to a run's directory, and may have put a link there under a name that we are about to write.
What we make goes into the directory's list, if it has one (`written.py`).
"""

import contextlib
import dataclasses
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

from samestep.common.errors import WorkerFailed
from samestep.common.files.reading import open_plain
from samestep.common.files.written import HERE, WrittenEntry, announced, begin, note, opened, parent_of, present, read

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IN_PLACE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_PLAIN = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
"""The errors of opening a link, a file below a link, a folder, a pipe or a socket."""


def open_directory(directory: Path, is_new: bool = False) -> None:
    """Makes a directory, for its user alone, or uses an existing one; what is written into it from now on is listed.

    Args:
        directory: The directory.
        is_new: Whether it must not exist yet. If two processes make the same directory, only one succeeds.

    Raises:
        FileExistsError: It must not exist yet, but does.
        OSError: It cannot be made or written.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o700)
        is_made = True
    except FileExistsError:
        if is_new:
            raise
        is_made = False
    with opened(directory) as root:
        begin(root)
        if is_made:
            note(root, WrittenEntry(HERE, os.fstat(root).st_ino, is_folder=True))


def make_folder(path: Path, below: Path) -> None:
    """Makes a folder in a directory, or uses an existing one unless it is a link.

    Args:
        path: The folder.
        below: The directory.

    Raises:
        WorkerFailed: Something else has its name.
    """
    with _entered(path, below) as (root, parent, leaf):
        name = str(path.relative_to(below))
        if not os.access(leaf, os.F_OK, dir_fd=parent, follow_symlinks=False):
            with contextlib.suppress(FileExistsError), announced(root, name, is_folder=True):
                os.mkdir(leaf, 0o777, dir_fd=parent)
                inode = os.stat(leaf, dir_fd=parent, follow_symlinks=False).st_ino
                note(root, WrittenEntry(name, inode, is_folder=True))
        if not stat.S_ISDIR(os.stat(leaf, dir_fd=parent, follow_symlinks=False).st_mode):
            _refuse(path)


def create(path: Path, below: Path | None = None) -> int:
    """Opens a new file for writing. A file of ours that has its name is removed; one of somebody else is refused.

    Args:
        path: The file.
        below: The directory that it belongs to; its parent, unless given.

    Returns:
        The descriptor.

    Raises:
        OSError: It cannot be made.
        WorkerFailed: Something has its name that is not ours.
    """
    with _entered(path, below) as (root, parent, leaf):
        name = str(path.relative_to(below or path.parent))
        if _is_taken(path, root, name, parent, leaf):
            os.unlink(leaf, dir_fd=parent)
        try:
            with announced(root, name):
                descriptor = os.open(leaf, os.O_RDWR | _NEW, 0o666, dir_fd=parent)
        except FileExistsError:
            _refuse(path)
        note(root, WrittenEntry(name, os.fstat(descriptor).st_ino))
        return descriptor


def reopen(path: Path) -> int:
    """Opens a file to overwrite it in place, which needs no further room; creates it if it does not exist.

    Args:
        path: The file.

    Returns:
        The descriptor, open for reading as well.

    Raises:
        OSError: It cannot be opened.
        WorkerFailed: It is not a plain file with a single name.
    """
    with _entered(path, None) as (_, parent, leaf):
        try:
            descriptor = os.open(leaf, os.O_RDWR | _IN_PLACE, dir_fd=parent)
        except FileNotFoundError:
            descriptor = None
        if descriptor is not None:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                return descriptor
            os.close(descriptor)
            _refuse(path)
    return create(path)


def append(path: Path, line: bytes) -> None:
    """Appends to an existing file in one write, since several processes may do so at the same time.

    Args:
        path: The file.
        line: What to append.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | _IN_PLACE), "wb", buffering=0) as file:
        file.write(line)


@contextlib.contextmanager
def replacing(path: Path, below: Path | None = None, is_users: bool = False) -> Iterator[IO[bytes]]:
    """Yields a file to write, which then replaces the one at the path. If that fails, as on a full disk, nothing is left.

    Args:
        path: The file.
        below: The directory that it belongs to; its parent, unless given.
        is_users: Whether the user named this file. It may then replace a file that is not ours, and is not listed.

    Raises:
        OSError: It cannot be written.
        WorkerFailed: Something has its name that is not ours.
    """
    with _entered(path, below) as (root, parent, leaf):
        name = str(path.relative_to(below or path.parent))
        if not is_users:
            _is_taken(path, root, name, parent, leaf)
        unfinished = f"{leaf}.{os.urandom(8).hex()}.tmp"
        with announced(root, listed := str(Path(name).with_name(unfinished))):
            descriptor = os.open(unfinished, os.O_RDWR | _NEW, 0o666, dir_fd=parent)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                note(root, WrittenEntry(listed, os.fstat(descriptor).st_ino))
                yield file
            status = os.stat(unfinished, dir_fd=parent, follow_symlinks=False)
            with contextlib.nullcontext() if is_users else announced(root, name, complete=status):
                os.replace(unfinished, leaf, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished, dir_fd=parent)
            raise


def rename_folder(folder: Path, name: str, below: Path) -> Path:
    """Gives a folder of ours its final name. What is in it, and then the name, is on the disk when this returns.

    Args:
        folder: The folder, whose files are complete and on the disk.
        name: Its new name, in the same folder.
        below: The directory that it belongs to.

    Returns:
        The new path.

    Raises:
        OSError: It cannot be renamed, for example because the name is taken.
        WorkerFailed: The folder is below a link.
    """
    with _entered(folder, below) as (root, parent, leaf):
        old, new = (str(path.relative_to(below)) for path in (folder, folder.with_name(name)))
        # Before the rename: a list may name what does not exist, but must not lack what does.
        for entry in (read(root) or {}).values():
            if entry.name == old or entry.name.startswith(f"{old}/"):
                note(root, dataclasses.replace(entry, name=f"{new}{entry.name[len(old) :]}"))
        _sync_folder(leaf, parent)
        os.rename(leaf, name, src_dir_fd=parent, dst_dir_fd=parent)
        _sync_folder(HERE, parent)
    return folder.with_name(name)


def _sync_folder(name: str, parent: int) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_file(source: Path, path: Path, below: Path | None = None) -> None:
    """Copies a plain file.

    Args:
        source: The file.
        path: The copy.
        below: The directory that it belongs to; its parent, unless given.

    Raises:
        Unreadable: The source is not a plain file.
    """
    with open_plain(source) as read_from, replacing(path, below) as file:
        shutil.copyfileobj(read_from, file)


@contextlib.contextmanager
def _entered(path: Path, below: Path | None) -> Iterator[tuple[int, int, str]]:
    """Opens the directory of a file and the folder that holds it; yields both, and the file's name in the folder."""
    try:
        directory = below or path.parent
        with opened(directory) as root, parent_of(root, str(path.relative_to(directory))) as (parent, leaf):
            yield root, parent, leaf
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            _refuse(path)
        raise


def _is_taken(path: Path, root: int, name: str, parent: int, leaf: str) -> bool:
    """Checks whether a file of ours has a name, and refuses one that is not ours. Without a list, every plain file is ours."""
    try:
        status = os.stat(leaf, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    is_plain = stat.S_ISREG(status.st_mode) and (read(root) is None or name in (present(root) or {}))
    if not is_plain:
        _refuse(path)
    return True


def _refuse(path: Path) -> NoReturn:
    raise WorkerFailed(
        f"{path} is not a plain file that samestep wrote, and was left as it is; move it away, or name another directory."
    ) from None

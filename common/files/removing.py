"""Finds and removes what samestep wrote, according to the lists of `written.py`, so everything else stays."""

import contextlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from samestep.common.files.written import HERE, LIST, opened, parent_of, present


def walk(folder: Path, depth: int = 32) -> Iterator[tuple[Path, list[str], int]]:
    """Yields a folder and then the folders in it, each open and with the names of its files.

    Args:
        folder: Where to start. Links, and what does not exist, are left out.
        depth: How far below it.
    """
    with contextlib.suppress(OSError):
        if not folder.is_dir() or folder.is_symlink():
            return
        for name, folders, files, descriptor in os.fwalk(folder):
            yield Path(name), files, descriptor
            if len(Path(name).parts) - len(folder.parts) >= depth:
                folders.clear()


def find_written(folder: Path, depth: int = 32) -> Iterator[tuple[Path, dict[str, os.stat_result]]]:
    """Yields the directories in and below a folder that have a list, with what is ours in each.

    Args:
        folder: Where to look.
        depth: How far below it.
    """
    for path, _, descriptor in walk(folder, depth):
        if (found := present(descriptor)) is not None:
            yield path, found


def bytes_below(folder: Path) -> int:
    """Adds up the bytes of all files of ours in and below a folder, without the lists of them."""
    listed = [each for _, found in find_written(folder) for each in found.items()]
    return sum(status.st_size for name, status in listed if name != LIST and stat.S_ISREG(status.st_mode))


def discard_all(folder: Path) -> None:
    """Removes what samestep wrote into a directory, and into those below it; see `discard`."""
    for path, _ in reversed([*find_written(folder)]):
        discard(path)


def discard(directory: Path, keep: Collection[str] = (), is_changed: bool = False) -> None:
    """Removes what samestep wrote into a directory, and the directory if samestep made it and nothing else is in it.

    Args:
        directory: The directory; one without a list is left alone, and so is a link.
        keep: The names to keep.
        is_changed: Whether a file still counts if it was replaced or has other bytes by now.
    """
    with contextlib.suppress(OSError), opened(directory, follow=False) as root:
        found = present(root, is_changed)
        if found is None:
            return
        found.pop(LIST, None)
        made_here, kept = found.pop(HERE, None) is not None, [name for name in keep if name in found]
        _remove(root, {name: status for name, status in found.items() if name not in kept})
        if kept:
            return
        os.unlink(LIST, dir_fd=root)
        if made_here:
            _remove_empty(directory, root)


def discard_folder(folder: Path, below: Path) -> None:
    """Removes what samestep wrote into a folder of a directory, and the folder if nothing else is in it.

    Args:
        folder: The folder.
        below: The directory whose list names it.
    """
    own = str(folder.relative_to(below))
    with contextlib.suppress(OSError), opened(below, follow=False) as root:
        found = (present(root) or {}).items()
        _remove(root, {name: status for name, status in found if name == own or name.startswith(f"{own}/")})


def _remove(root: int, found: Mapping[str, os.stat_result]) -> None:
    for name in sorted(found, reverse=True):  # what is in a folder is removed before it
        with contextlib.suppress(OSError), parent_of(root, name) as (parent, leaf):
            (os.rmdir if stat.S_ISDIR(found[name].st_mode) else os.unlink)(leaf, dir_fd=parent)


def _remove_empty(directory: Path, root: int) -> None:
    """Removes a directory if it is empty and still has its name."""
    with opened(directory.absolute().parent) as above:
        there = os.stat(directory.absolute().name, dir_fd=above, follow_symlinks=False)
        if os.path.samestat(there, os.fstat(root)):
            os.rmdir(directory.absolute().name, dir_fd=above)

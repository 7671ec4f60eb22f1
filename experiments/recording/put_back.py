"""Puts back the user's files that a rerun overwrote or removed, from the copies of `injected/keeping.py`."""

import contextlib
import filecmp
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from samestep.common.errors import WorkerFailed, name_some
from samestep.common.files.locks import alone_in
from samestep.common.files.reading import Unreadable, parse_json, read_bytes
from samestep.common.files.removing import discard
from samestep.common.files.writing import create, open_directory
from samestep.common.files.written import opened, present

_COPIES, _LIST = "kept", "kept.jsonl"
"""The folder next to the reruns of a record that holds the copies while a command runs, and the list in it."""
_NAMED = 3
"""The most files that a message names."""
_SECONDS = 2.0
"""If `samestep diff` was killed, a file counts as written by its rerun up to this long after the rerun's last entry."""


@contextlib.contextmanager
def keeping(reruns: Path, place: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """Keeps the files that a command is about to overwrite, and puts them back when the command has ended in any way.

    Files that the command made below its working directory are removed, since the next rerun would continue from them.

    Yields:
        The value of `RecordOptions.keep`.

    Args:
        reruns: The folder of the reruns of a record, which are made one at a time.
        place: The directory in which the command is started.
        say: Tells the user what happens to files.

    Raises:
        WorkerFailed: A file could not be put back.
    """
    folder = reruns / _COPIES
    with alone_in(reruns, lambda: say("is being run again by another command; this one waits ...")):
        if folder.exists():
            _recover(folder, place, say)
        open_directory(folder, is_new=True)
        os.close(create(folder / _LIST))
        try:
            yield folder / _LIST
        finally:
            _restore(folder, [*_entries(folder)], place, say)


def _name(paths: Sequence[Path]) -> str:
    here = Path.cwd()
    return name_some([str(each.relative_to(here) if each.is_relative_to(here) else each) for each in paths], _NAMED)


def _outermost(paths: Sequence[Path]) -> list[Path]:
    return [each for each in paths if not {*each.parents} & {*paths}]


def _is_removed(path: Path) -> bool:
    """Removes a file, a link, or an empty folder; returns whether that worked."""
    try:
        (path.rmdir if path.is_dir() and not path.is_symlink() else path.unlink)()
    except OSError:
        return False
    return True


def _restore(
    folder: Path, entries: Sequence[Mapping[str, Any]], place: Path, say: Callable[[str], None], is_all: bool = True
) -> None:
    """Puts back the files that a rerun changed, removes those that it made below its folder, and reports both."""
    if restored := put_back(folder, entries, is_all):
        say(f"has its files back as they were before the rerun: {_name(restored)}.")
    # Inner ones first.
    new = sorted((Path(each["path"]) for each in entries if each["kind"] == "new"), reverse=True)
    made = [path for path in new if os.path.lexists(path)]
    if removed := [each for each in made if place in each.parents and _is_removed(each)]:
        say(f"is cleared of what its rerun made: {_name(_outermost(removed))}.")
    if left := [each for each in made if _is_worth_telling(each)]:
        say(f"made new files in its rerun, which stay: {_name(_outermost(left))}.")


def _recover(folder: Path, place: Path, say: Callable[[str], None]) -> None:
    """Puts back the files that a rerun changed if its `samestep diff` was killed, except those that changed after it.

    A list that came with a copied record is not trusted.
    """
    with opened(folder, follow=False) as root:
        is_ours = _LIST in (present(root, is_changed=True) or {})
    if not is_ours:
        raise WorkerFailed(f"{folder} holds copies that an interrupted rerun left elsewhere; move it away.")
    last = max(each.stat().st_mtime for each in folder.parent.rglob("*") if each.is_file()) + _SECONDS
    entries = [*_entries(folder)]
    newer = [each for each in entries if _changed(Path(each["path"])) > last]
    lost = [Path(each["path"]) for each in newer if "copy" in each]
    _restore(folder, [each for each in entries if each not in newer], place, say, is_all=not lost)
    if lost:
        kept = _set_aside(folder)
        say(f"was cut off in a rerun; these may have changed since, so they stay: {_name(lost)}; see {kept / _LIST}.")


def _changed(path: Path) -> float:
    """Returns the time of the last change of a path or its metadata, in seconds; 0 if nothing is there."""
    try:
        status = path.lstat()
    except OSError:
        return 0.0
    return max(status.st_mtime, status.st_ctime)


def _set_aside(folder: Path) -> Path:
    """Renames the folder of copies that could not be put back, so no rerun uses them."""
    free = next(
        path for number in itertools.count(1) if not (path := folder.with_name(f"{folder.name}-{number}")).exists()
    )
    return folder.rename(free)


def put_back(folder: Path, entries: Sequence[Mapping[str, Any]], is_all: bool = True) -> list[Path]:
    """Puts back everything that a rerun changed, and removes the copies.

    Args:
        folder: The folder of the copies.
        entries: The entries to put back.
        is_all: Whether no other copy is needed.

    Returns:
        The paths that were put back.

    Raises:
        WorkerFailed: A file could not be put back; the copies stay, and no later rerun puts them back.
    """
    restored, failed = [], []  # type: list[Path], list[tuple[str, str]]
    for each in entries:
        path = Path(each["path"])
        try:
            if _is_put_back(folder, path, each):
                restored += [path] * (each["kind"] != "folder")
        except OSError as error:
            failed.append(
                (f"{path} was changed by a rerun and cannot be put back ({error.strerror})", each.get("copy", _LIST))
            )
    if failed:
        reason, copy = failed[0]
        raise WorkerFailed(f"{reason}; it is kept as {_set_aside(folder) / copy}.")
    if is_all:
        for copy in folder.glob("[0-9]*"):
            copy.unlink()  # also if it was cut short, or if the file is unchanged
        discard(folder, is_changed=True)
    return restored


def _entries(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the entries of a list, folders first and outer ones before inner ones, so their files can be put back."""
    try:
        lines = read_bytes(folder / _LIST).splitlines()
    except Unreadable:
        return
    found = list[Any]()
    for line in lines:
        with contextlib.suppress(Unreadable):  # a process was killed while it wrote
            found.append(parse_json(line))
    yield from sorted(found, key=lambda each: (each["kind"] != "folder", len(each["path"])))


def _is_put_back(folder: Path, path: Path, entry: Mapping[str, Any]) -> bool:
    """Puts one path back; returns whether it had changed."""
    match entry["kind"]:
        case "folder":
            if is_other := path.is_symlink() or not path.is_dir():
                _make_room(path)
                path.mkdir()
            path.chmod(entry["mode"])
            return is_other
        case "link" if not path.is_symlink() or os.readlink(path) != entry["target"]:
            _make_room(path)
            path.symlink_to(entry["target"])
        case "file" if (copy := folder / entry["copy"]).exists():
            if is_other := not _is_same(copy, path):
                _put_file_back(copy, path, entry.get("inode"))
            with contextlib.suppress(OSError):  # only its owner may
                shutil.copystat(copy, path)
            return is_other
        case _:
            return False
    return True


def _make_room(path: Path) -> None:
    """Removes what a rerun has put in the place of something of another kind, and makes the folder around it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)


def _put_file_back(copy: Path, path: Path, inode: Sequence[int] | None) -> None:
    """Replaces a file; if it has other names, it is overwritten in place, so that they share the contents.

    Args:
        copy: The copy of the file.
        path: The path of the file.
        inode: Its device and inode number, if it had other names.
    """
    if os.path.lexists(path) and [(status := path.lstat()).st_dev, status.st_ino] == inode:
        shutil.copyfile(copy, path)
        return
    if not path.is_file():
        _make_room(path)
    unfinished, status = _beside(path), copy.stat()
    try:
        shutil.copy2(copy, unfinished)
        with contextlib.suppress(OSError):  # only root may give files away
            os.chown(unfinished, status.st_uid, status.st_gid)
        unfinished.replace(path)
    except BaseException:  # also for Ctrl-C: the copy still exists, and the next diff puts it back
        unfinished.unlink(missing_ok=True)
        raise


def _is_same(copy: Path, path: Path) -> bool:
    """Returns whether a file is unchanged; it is then left alone, since another program may have locked it."""
    return path.is_file() and not path.is_symlink() and filecmp.cmp(copy, path, shallow=False)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:200]}.{os.urandom(8).hex()}.tmp")


def _is_worth_telling(path: Path) -> bool:
    """Returns whether a user would look for a new file: it exists, and is neither hidden nor temporary."""
    is_hidden = any(part.startswith(".") for part in path.parts)
    is_temporary = Path(tempfile.gettempdir()).resolve() in path.parents and Path.cwd() not in path.parents
    return os.path.lexists(path) and not (is_hidden or is_temporary)

"""A rerun leaves the user's files as they were: what it overwrites or removes is kept by `injected/keeping.py`, and put back."""

import contextlib
import filecmp
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
"""The folder beside the reruns of a record that holds the copies while a command runs, and the list in it."""
_NAMED = 3
"""How many files are named to the user."""


@contextlib.contextmanager
def keeping(reruns: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """Keeps what a command is about to overwrite, and puts it back when that has ended, however it ends.

    Yields:
        The value of `RecordOptions.keep`.

    Args:
        reruns: The folder of the reruns of a record, of which one is made at a time.
        say: Tells the user what becomes of files.

    Raises:
        WorkerFailed: Something could not be put back.
    """
    folder = reruns / _COPIES
    with alone_in(reruns, lambda: say("is being run again by another command; this one waits ...")):
        if folder.exists():
            _recover(folder)
        open_directory(folder, is_new=True)
        os.close(create(folder / _LIST))
        try:
            yield folder / _LIST
        finally:
            restored, made = put_back(folder)
            if restored:
                say(f"has its files back as they were before the rerun: {_name(restored)}.")
            if made:
                say(f"made new files in its rerun, which stay: {_name(made)}.")


def _name(paths: Sequence[Path]) -> str:
    here = Path.cwd()
    return name_some([str(each.relative_to(here) if each.is_relative_to(here) else each) for each in paths], _NAMED)


def _recover(folder: Path) -> None:
    """Puts back what a rerun changed whose `samestep diff` was killed. A list that came with a copied record is not believed."""
    with opened(folder, follow=False) as root:
        is_ours = _LIST in (present(root, is_changed=True) or {})
    if not is_ours:
        raise WorkerFailed(f"{folder} holds copies that an interrupted rerun left elsewhere; move it away.")
    put_back(folder)


def put_back(folder: Path) -> tuple[list[Path], list[Path]]:
    """Puts everything back that a rerun changed, and removes its copies.

    Args:
        folder: Where the copies are.

    Returns:
        The paths that were put back, and the outermost new ones, which stay.

    Raises:
        WorkerFailed: Something could not be put back, and its copy is where it was.
    """
    entries, restored, failed = [*_entries(folder)], [], []  # type: list[Any], list[Path], list[str]
    for each in entries:
        path = Path(each["path"])
        try:
            if _is_put_back(folder, path, each):
                restored += [path] * (each["kind"] != "folder")
        except OSError as error:
            kept = f"; it is kept as {folder / each['copy']}" if "copy" in each else ""
            failed.append(f"{path} was changed by a rerun and cannot be put back ({error.strerror}){kept}.")
    if failed:
        raise WorkerFailed(failed[0])
    made = [path for each in entries if each["kind"] == "new" and _is_worth_telling(path := Path(each["path"]))]
    for copy in folder.glob("[0-9]*"):
        copy.unlink()  # cut short, or of a file that still holds what it held
    discard(folder, is_changed=True)
    return restored, [each for each in made if not set(each.parents) & set(made)]


def _entries(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the lines of a list, folders first and outer ones before inner ones: what is in them can be put back then."""
    try:
        lines = read_bytes(folder / _LIST).splitlines()
    except Unreadable:
        return
    found = []
    for line in lines:
        with contextlib.suppress(Unreadable):  # a process was killed while it wrote
            found.append(parse_json(line))
    yield from sorted(found, key=lambda each: (each["kind"] != "folder", len(each["path"])))


def _is_put_back(folder: Path, path: Path, entry: Mapping[str, Any]) -> bool:
    """Puts one thing back; returns whether it was changed."""
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
    """Removes what a rerun has put where something of another kind was, and makes the folder around it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)


def _put_file_back(copy: Path, path: Path, inode: Sequence[int] | None) -> None:
    """Writes a file anew; into itself if it has other names, which hold the same.

    Args:
        copy: What it held.
        path: Where it is.
        inode: Its device and number, if it had other names.
    """
    if os.path.lexists(path) and [(status := path.lstat()).st_dev, status.st_ino] == inode:
        shutil.copyfile(copy, path)
        return
    if not path.is_file():
        _make_room(path)
    shutil.copy2(copy, unfinished := _beside(path))
    status = copy.stat()
    with contextlib.suppress(OSError):  # only root may give files away
        os.chown(unfinished, status.st_uid, status.st_gid)
    unfinished.replace(path)


def _is_same(copy: Path, path: Path) -> bool:
    """Returns whether a file holds what it held: it is left alone then, for another program may have locked it."""
    return path.is_file() and not path.is_symlink() and filecmp.cmp(copy, path, shallow=False)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:200]}.{os.urandom(8).hex()}.tmp")


def _is_worth_telling(path: Path) -> bool:
    """Returns whether a user would look for a new file: it is there, is no cache, and is not temporary."""
    is_hidden = any(part.startswith(".") for part in path.parts)
    return os.path.lexists(path) and not is_hidden and Path(tempfile.gettempdir()).resolve() not in path.parents

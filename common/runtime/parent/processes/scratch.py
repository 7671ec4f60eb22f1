"""Folders for temporary files, one for each command; the next command removes those that killed commands left behind."""

import contextlib
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path

from samestep.common.runtime.processes import look

PREFIX = "samestep-"
OWNER = "owner.json"
"""The file that names the process to which a folder belongs."""
_MOST_BYTES = 4096


def make_scratch() -> tempfile.TemporaryDirectory[str]:
    """Makes a folder for temporary files, and removes those of killed commands first. Use it as a context manager."""
    sweep(Path(tempfile.gettempdir()))
    folder = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
    with contextlib.suppress(OSError):  # without /proc, nothing is swept
        owner = {"pid": os.getpid(), "started": _started(os.getpid()), "place": _place()}
        Path(folder.name, OWNER).write_text(json.dumps(owner))
    return folder


def sweep(temporary: Path) -> None:
    """Removes the scratch folders of this user whose processes have ended without removing them.

    It leaves every folder whose owner may still be alive: a folder without an owner file, of another user, behind a link,
    or from an earlier boot or another container, where process ids have another meaning.

    Args:
        temporary: The folder that holds them.
    """
    with contextlib.suppress(OSError):
        for path in [*temporary.glob(f"{PREFIX}*")]:
            with contextlib.suppress(OSError):
                status = path.lstat()
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and _is_left(path):
                    shutil.rmtree(path)  # follows no link


def _is_left(folder: Path) -> bool:
    """Returns whether the process that owns a folder is known to have ended."""
    descriptor = os.open(folder / OWNER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > _MOST_BYTES:
            return False
        try:
            owner = json.load(file)
            pid, here = owner["pid"], owner["place"] == _place()
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
    return here and type(pid) is int and pid > 0 and _started(pid) != owner.get("started")


def _place() -> list[str]:
    """Identifies the boot and the namespaces within which process ids and their start times can be compared."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    spaces = [f"/proc/self/ns/{name}" for name in ("pid", "time")]
    return [boot, *(os.readlink(space) for space in spaces if os.path.lexists(space))]  # "time": since Linux 5.6


def _started(pid: int) -> str | None:
    """Returns when a process was started, in the kernel's own unit; None if no such process runs."""
    seen = look(pid)
    return str(seen.started) if seen is not None and seen.is_alive else None

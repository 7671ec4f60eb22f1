"""Rooms in which a fault is real: a disk that can be filled, and memory that can be short. Both need root."""

import atexit
import contextlib
import ctypes
import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from samestep.common.errors import Unavailable
from samestep.common.runtime.parent.processes.memory_kills import _own_cgroup

_CLONE_NEWNS = 0x20000
DISK_BYTES = 2**22


@functools.cache
def own_mounts() -> None:
    """Gives this process, and those that it starts from now on, mounts that nobody else sees."""
    if ctypes.CDLL(None).unshare(_CLONE_NEWNS) != 0:
        raise Unavailable("this machine allows no mounts of our own, so no disk can be filled")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """Makes a directory a file system of 4 MiB.

    Raises:
        Unavailable: This machine does not allow it.
    """
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)], check=False)
    if done.returncode:
        raise Unavailable("this machine allows no mounts, so no disk can be filled")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@functools.cache
def memory_group() -> Path | None:
    """Moves this process, and so those that it starts, into a control group of its own; None where that is forbidden.

    Its folder has the files of version 1, by which its memory can be limited.
    """
    above = _own_cgroup()
    group = above / f"samestep-chaos-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").read_text()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return None

    def leave() -> None:
        (above / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):
            group.rmdir()

    atexit.register(leave)
    return group

"""Measures what the whole museum takes, from an empty store on."""

import contextlib
import os
import time
from collections.abc import Iterator

from museum.piece import STORE

_KEPT = STORE / "effort.txt"


@contextlib.contextmanager
def measured(is_whole: bool) -> Iterator[None]:
    """Keeps a sentence of what was done within it, if nothing fails.

    Args:
        is_whole: Whether all pieces are shown. If so, and there is nothing yet, it is measured.
    """
    is_whole, began = is_whole and not STORE.exists(), time.monotonic()
    yield
    if is_whole:
        minutes = (time.monotonic() - began) / 60
        used = sum(os.times()[:4]) / 60
        bytes_kept = sum(path.stat().st_size for path in STORE.rglob("*") if path.is_file())
        _KEPT.write_text(
            f"From an empty folder this took {minutes:.0f} minutes ({used:.0f} minutes of CPU time) on {os.cpu_count()} CPUs "
            f"at a load of {os.getloadavg()[2]:.1f}, and left {bytes_kept / 1e9:.1f} GB on the disk."
        )


def sentence() -> str:
    """Returns what it took when it was last done from an empty store on; "" if nobody knows."""
    return _KEPT.read_text() if _KEPT.exists() else ""

"""Measures what the whole museum takes, from an empty store on, in however many calls."""

import contextlib
import os
from collections.abc import Iterator

from museum.piece import STORE

_KEPT = STORE / "processor-seconds.txt"


@contextlib.contextmanager
def measured() -> Iterator[None]:
    """Adds what is done within it to what earlier calls did, unless it is killed."""
    before = _processor_seconds()
    try:
        yield
    finally:
        STORE.mkdir(exist_ok=True)
        _KEPT.write_text(f"{_so_far() + _processor_seconds() - before:.1f}")


def sentence() -> str:
    """Returns what it took until now."""
    gigabytes = sum(path.stat().st_size for path in STORE.rglob("*") if path.is_file()) / 1e9
    return f"From an empty folder, this took {_so_far() / 60:.0f} minutes of CPU time and left {gigabytes:.1f} GB on the disk."


def _so_far() -> float:
    return float(_KEPT.read_text()) if _KEPT.exists() else 0.0


def _processor_seconds() -> float:
    return sum(os.times()[:4])

"""Silences standard error for libraries that write to it whatever their settings are."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Makes a context in which nothing reaches the standard error of this process, not even from C++."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)

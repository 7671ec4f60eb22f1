"""What ends a record before its script: an error in a hook, or one that the script's own signal handler raises during a hook."""

import functools
import os
import signal
from pathlib import Path
from types import CodeType
from typing import IO


def is_of_script(error: BaseException) -> bool:
    """Returns whether an error that ended a hook is the script's, such as Ctrl-C or a timeout that its signal handler raises."""
    if not isinstance(error, Exception):
        return True
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code not in handlers:
        place = place.tb_next
    return place is not None


def spell_failure(error: BaseException) -> str:
    """Says why a record ends, with the line of samestep that failed."""
    if is_of_script(error):
        return f"{type(error).__name__} was raised while it was written, and was passed on to the script."
    if isinstance(error, OSError):
        return f"{error.strerror or error}."
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" in {Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
    return f"{type(error).__name__}{where}: {error}"


def spell_taken(path: Path) -> str:
    """Returns why a process cannot create a file of this name in a record; "" if it can."""
    if path.exists():
        others = f"another process wrote {path.name}; process {os.getpid()} was not recorded"
        return f"{others}. If the command trains several times, record each training alone."
    return spell_removed(path.parent)


def spell_removed(folder: Path, file: IO[bytes] | None = None) -> str:
    """Returns a message that a record is gone, e.g. because the script cleans its folder of runs; "" if it is still there.

    Args:
        folder: The directory of the record.
        file: The file in it that this process writes.
    """
    if folder.is_dir() and (file is None or file.closed or os.fstat(file.fileno()).st_nlink):
        return ""
    return (
        f"something removed or moved {folder} while the command ran, as a script does that cleans its folder of runs; "
        "name another directory with --out."
    )


def _code_of(handler: object) -> CodeType | None:
    """Returns the code that a handler runs; None if it is not Python code."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):
        return None
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)

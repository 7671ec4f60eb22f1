"""The message about a process that ended or hangs: how it ended, where it was, and the last lines of its log."""

import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import COLOURS
from samestep.common.files.reading import Unreadable, read_end
from samestep.common.runtime.process_file import read_life

if TYPE_CHECKING:
    from samestep.common.runtime.stack_dumps import Frame

_NO_CAUSE = re.compile(
    r"^(I\d{4} \d\d:|WARNING: All log messages before absl|[WE]\d{4} .*failed call to cuInit|Extension modules: )"
)
"""Lines that TensorFlow (2.21) prints at its start and on every machine without a GPU, and the end of Python's report of a
crash. As last lines they could be taken for a cause.
"""


def ending(code: int) -> str:
    """Describes how a process ended; a negative exit code is the signal that killed it."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def read_log(log: Path, start: int = 0) -> str:
    """Reads a log from a position to its end, without colours; "" if there is no log.

    Args:
        log: The file.
        start: The position in bytes.
    """
    try:
        return COLOURS.sub("", read_end(log, start))
    except Unreadable:
        return ""


def last_lines(text: str, count: int = 3) -> str:
    """Returns the last lines of a log, indented, in a message's style, and cut at 300 characters each; "" if there are none.

    Args:
        text: The whole log.
        count: The number of lines.
    """
    lines = [line for line in text.rstrip().splitlines() if not _NO_CAUSE.match(line)]
    return "".join(f"\n    {line[:300]}" for line in lines[-count:])


def crash_report(
    directory: Path, role: str, what: str, at: "Frame | None" = None, said: str | None = None, reached: int = 0
) -> str:
    """Returns the message about a process: what happened to it, in which phase and step, where its log is and how it ends.

    Args:
        directory: The run directory.
        role: The role of the process.
        what: What happened to it.
        at: The line of code that it had reached, if its log does not show that.
        said: The last lines to show, if not those that its log has now.
        reached: The step that it had reached at least; its own sign of life may be older.
    """
    from samestep.common.runtime.stack_dumps import CRASH, crash_frame  # here: most runs end well

    log = directory / f"{role}.log"
    text, _, stacks = read_log(log).partition(CRASH)
    at = at or crash_frame(stacks)
    life = read_life(directory, role)
    where = f" (phase: {life.phase}, step {max(life.step, reached)}{f', at {at}' if at else ''})" if life.phase else ""
    return f"{role} {what}{where}; log: {log}.{last_lines(text) if said is None else said}"

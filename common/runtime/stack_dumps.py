"""Stack dumps: where a process hangs or crashes in native code, from the stacks of its threads in its log."""

import dataclasses
import faulthandler
import re
import signal
from collections.abc import Mapping
from pathlib import Path

DUMP_SIGNAL = signal.SIGUSR1
CRASH = "Fatal Python error: "
"""What Python writes to the log, followed by the stacks, when native code crashes."""
_THREAD = re.compile(r"hread 0x.*\(most recent call first\):\n((?:  .*\n)*)")
_LINE = re.compile(r'  File "(.*)", line (\d+) in (.*)\n')


@dataclasses.dataclass(frozen=True)
class Frame:
    """The innermost frame of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} {self.function}"


def enable_stack_dumps() -> None:
    """Makes this process write its stacks to its log on DUMP_SIGNAL, even while it hangs, and when native code crashes."""
    faulthandler.enable()
    faulthandler.register(DUMP_SIGNAL)


def crash_frame(stacks: str) -> Frame | None:
    """The innermost frame of the thread that crashed; None if there is none: it was not one of Python's.

    Args:
        stacks: What follows CRASH.
    """
    _, _, current = stacks.partition("Current t")
    thread = _THREAD.match(current)
    return next(iter(_frames(thread[1])), None) if thread else None


def worker_frame(dump: str) -> Frame | None:
    """The innermost frame of the thread that does a worker's work; None if the process wrote no stacks.

    Args:
        dump: What was added to the log since the process was signalled.
    """
    for stack in _THREAD.findall(dump):
        frames = _frames(stack)
        if any(found.file.endswith("common/runtime/worker/worker.py") for found in frames):
            return frames[0]
    return None


def _frames(stack: str) -> list[Frame]:
    """Parses the frames of a stack, the innermost first."""
    return [Frame(file, int(line), function) for file, line, function in _LINE.findall(stack)]


def sole_straggler(frames: Mapping[int, Frame | None], module: str) -> int | None:
    """The one process that is not waiting inside its framework while its peers are; None unless there is exactly one.

    Args:
        frames: By process.
        module: The framework's name, such as "torch".
    """
    elsewhere = [process for process, found in frames.items() if found is None or f"/{module}/" not in found.file]
    return elsewhere[0] if len(elsewhere) == 1 else None

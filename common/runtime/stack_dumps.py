"""Finds where a process hangs or crashes in native code, from the stacks of its threads in its log."""

import dataclasses
import faulthandler
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

DUMP_SIGNAL = signal.SIGUSR1
CRASH = "Fatal Python error: "
"""The line that Python writes to the log, followed by the stacks, when native code crashes."""
_THREAD = re.compile(r"hread 0x.*\(most recent call first\):\n((?:  .*\n)*)")
_STANDARD_LIBRARY = re.compile(r"/python3[.\d]*/(?!site-packages/|dist-packages/)|^<frozen ")
_LINE = re.compile(r'  File "(.*)", line (\d+) in (.*)\n')


@dataclasses.dataclass(frozen=True)
class Frame:
    """The innermost frame of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} {self.function}"


Stack = Sequence[Frame]
"""The frames of a thread, the innermost first."""


def enable_stack_dumps() -> None:
    """Makes this process write its stacks to its log on DUMP_SIGNAL, even while it hangs, and when native code crashes."""
    faulthandler.enable()
    faulthandler.register(DUMP_SIGNAL)


def crash_frame(stacks: str) -> Frame | None:
    """Returns the innermost frame of the thread that crashed; None if it was not a Python thread.

    Args:
        stacks: The text after CRASH.
    """
    _, _, current = stacks.partition("Current t")
    thread = _THREAD.match(current)
    return next(iter(_frames(thread[1])), None) if thread else None


def worker_stack(dump: str) -> Stack:
    """Returns the stack of the thread that does a worker's work; empty if the process wrote none.

    Args:
        dump: What was added to the log since the process was signalled.
    """
    for stack in _THREAD.findall(dump):
        frames = _frames(stack)
        if any(found.file.endswith("common/runtime/worker/worker.py") for found in frames):
            return frames
    return ()


def _frames(stack: str) -> Stack:
    """Parses the frames of a stack, the innermost first."""
    return [Frame(file, int(line), function) for file, line, function in _LINE.findall(stack)]


def waits(stack: Stack, module: str) -> bool:
    """Returns whether a process waits for another one: for a lock, or inside its framework.

    Args:
        stack: The stack of the thread that does the work; empty if the process did not answer.
        module: The framework's name, such as "torch".
    """
    if stack and Path(stack[0].file).name == "threading.py":
        return True
    called = next((found.file for found in stack if not _STANDARD_LIBRARY.search(found.file)), "")
    return f"/{module}/" in called


def sole_straggler(stacks: Mapping[int, Stack], module: str) -> int | None:
    """Returns the one process that does not wait for the others; None unless there is exactly one.

    A process that does not answer is stopped or cannot run; it takes precedence over those that do something other than wait.

    Args:
        stacks: The stacks by process; empty for one that did not answer.
        module: The framework's name, such as "torch".
    """
    mute = [process for process, stack in stacks.items() if not stack]
    found = mute or [process for process, stack in stacks.items() if not waits(stack, module)]
    return found[0] if len(found) == 1 else None

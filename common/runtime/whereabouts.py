"""Where a process is that makes no progress or crashes in native code: its threads' stacks are in its log."""

import dataclasses
import faulthandler
import re
import signal
from collections.abc import Mapping
from pathlib import Path

WHERE = signal.SIGUSR1
CRASH = "Fatal Python error: "
"""What Python writes to the log, followed by the stacks, when native code crashes."""
_THREAD = re.compile(r"hread 0x.*\(most recent call first\):\n((?:  .*\n)*)")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)\n')


@dataclasses.dataclass(frozen=True)
class Place:
    """The innermost frame of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} {self.function}"


def answer_where() -> None:
    """From now on this process answers WHERE, even while it hangs in native code, and says where that crashes."""
    faulthandler.enable()
    faulthandler.register(WHERE)


def crashed(stacks: str) -> Place | None:
    """The innermost frame of the thread that crashed; None if there is none: it was not one of Python's.

    Args:
        stacks: What follows CRASH.
    """
    _, _, current = stacks.partition("Current t")
    thread = _THREAD.match(current)
    return next(iter(_places(thread[1])), None) if thread else None


def place(answer: str) -> Place | None:
    """Where the thread is that does a worker's work; None if there is no answer.

    Args:
        answer: What was added to the log since the process was asked.
    """
    for stack in _THREAD.findall(answer):
        places = _places(stack)
        if any(found.file.endswith("common/runtime/worker.py") for found in places):
            return places[0]
    return None


def _places(stack: str) -> list[Place]:
    """The frames of a stack, the innermost first."""
    return [Place(file, int(line), function) for file, line, function in _FRAME.findall(stack)]


def only_one_elsewhere(places: Mapping[int, Place | None], module: str) -> int | None:
    """The one process that does not wait inside its framework, as its peers do for it; None if it is not one.

    Args:
        places: By process.
        module: The framework's name, such as "torch".
    """
    elsewhere = [process for process, found in places.items() if found is None or f"/{module}/" not in found.file]
    return elsewhere[0] if len(elsewhere) == 1 else None

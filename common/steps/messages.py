"""Notes for the user from the processes of a recorded command, which `samestep record` prints when the command has ended."""

import contextlib
import json
import sys
from pathlib import Path

from samestep.common.files.writing import append


def leave_note(notes: str, kind: str, text: str) -> None:
    """Appends a line to the notes.

    Args:
        notes: The file of the notes; "" prints to stderr.
        kind: "python", "framework" or "note".
        text: The note.
    """
    if not notes:
        print(f"samestep: {text}", file=sys.stderr)
        return
    with contextlib.suppress(OSError):  # the command outlived `samestep record`
        append(Path(notes), json.dumps([kind, text]).encode() + b"\n")

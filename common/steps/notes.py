"""What the processes of a recorded command leave for the user: `samestep record` prints it when the command has ended."""

import json
import os
import sys


def leave_note(notes: str, kind: str, text: str) -> None:
    """Appends a line to the notes.

    Args:
        notes: Their file; "" prints to stderr.
        kind: "python", "framework" or "note".
        text: The note.
    """
    if not notes:
        print(f"samestep: {text}", file=sys.stderr)
        return
    try:
        descriptor = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.write(descriptor, json.dumps([kind, text]).encode() + b"\n")
        os.close(descriptor)
    except OSError:
        pass  # the command outlived `samestep record`

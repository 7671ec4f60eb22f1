"""A worker that runs the script in its folder, in a process that has imported TensorFlow already."""

import contextlib
import runpy
from pathlib import Path

SCRIPT, PRINTED = "script.py", "printed"


def main(arguments: list[str]) -> int:
    """Runs the script; what it prints goes to a file, since a log has what libraries print as well."""
    folder = Path(arguments[0])
    with (folder / PRINTED).open("w") as file, contextlib.redirect_stdout(file):
        runpy.run_path(str(folder / SCRIPT))
    return 0

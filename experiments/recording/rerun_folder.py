"""The reruns that are kept in a record, and whether they are complete."""

import hashlib
import os
import re
from pathlib import Path

from samestep.common.errors import SamestepError
from samestep.common.files.reading import read_bytes
from samestep.common.steps.joining import read_run
from samestep.common.steps.recorded_run import RecordedRun

FOLDER = "reruns"
"""The folder of reruns in the directory of a record."""


def numbered(folder: Path, pattern: str) -> list[tuple[tuple[int, ...], Path]]:
    """Returns the entries of a folder whose names match a pattern, with the numbers in them, by which they are sorted.

    Args:
        folder: The folder; one that does not exist is empty.
        pattern: A regular expression whose groups are numbers.
    """
    names = os.listdir(folder) if folder.is_dir() else []
    matches = [match for name in names if (match := re.fullmatch(pattern, name))]
    return sorted((tuple(map(int, match.groups())), folder / match[0]) for match in matches)


def named(kind: str, weights: Path) -> str:
    """Returns the name of the reruns that start from given weights.

    Args:
        kind: The kind of reruns.
        weights: The .npz file that holds the weights.
    """
    return f"{kind}-{hashlib.sha256(read_bytes(weights)).hexdigest()[:12]}"


def outermost(folder: Path) -> Path:
    """Returns the folder of the reruns of the outermost record, since a rerun is a record with reruns as well."""
    return outermost(folder.parents[1]) if folder.parents[1].name == FOLDER else folder


def read_whole(directory: Path, num_steps: int) -> RecordedRun | None:
    """Returns a rerun; None if it was interrupted, or is too short.

    Args:
        directory: The directory of the rerun.
        num_steps: The least number of steps.
    """
    try:
        found = read_run(directory)
        return found if count_steps(found, num_steps) >= num_steps else None
    except SamestepError:
        return None


def count_steps(run: RecordedRun, most: int | None = None) -> int:
    """Returns the number of steps that all ranks of a run took.

    Args:
        run: The run, which is read only as far as necessary.
        most: The number at which to stop counting; None counts all.
    """
    last = -1
    for step in run.steps:
        last = max(last, step.number)
        if most is not None and last + 1 >= most:
            break
    return last + 1

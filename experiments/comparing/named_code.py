"""Code that the file of a comparison names: announced before it runs, and refused if it changed since the file was written."""

from collections.abc import Mapping
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, read_sha256
from samestep.common.workload.declaration import split_file
from samestep.experiments.comparing.comparison_request import Given

DIGESTS = "sha256"
"""The table of `compare.toml` with the digest of each file of code."""
_NAMING = ("model", "data")
"""The settings that may name a Python file, with or without a name in it."""


def find_digests(given: Given) -> dict[str, str]:
    """Finds the files of code that settings name, with their digests; files that cannot be read are left out.

    Args:
        given: The settings.
    """
    digests = {}
    for file in _files(given):
        try:
            digests[file] = read_sha256(file)
        except Unreadable:
            continue  # whoever needs it says so
    return digests


def check_code(path: Path, stored: Given, beside: Given) -> list[str]:
    """Refuses code that has changed since the file of a comparison was written.

    Args:
        path: The file.
        stored: Its settings.
        beside: The user's other settings; code that they name themselves replaces that of the file.

    Returns:
        A line for each file that is about to be run.

    Raises:
        ConfigError: A file has changed.
    """
    recorded = stored.get(DIGESTS, {})
    if not isinstance(recorded, Mapping):
        raise ConfigError(f"{path}: {DIGESTS} is not a table of files; leave it out, or write the file again.")
    named = _files({name: value for name, value in stored.items() if beside.get(name) is None})
    now = find_digests(stored)
    for file in named:
        if file in recorded and now.get(file, recorded[file]) != recorded[file]:
            raise ConfigError(
                f"{file} has changed since {path} was written; name it with --model or --data in a new comparison, or restore it."
            )
    return [f"runs code from {file}, which {path} names" for file in named]


def _files(given: Given) -> list[str]:
    """Returns the Python files that settings name, as they are spelled there."""
    texts = [str(given[name]) for name in _NAMING if given.get(name) is not None]
    return [file for file in dict.fromkeys(split_file(text)[0] for text in texts) if file]

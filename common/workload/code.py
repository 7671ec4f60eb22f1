"""Files of code that a run directory may name, such as the user's model: which of their bytes a process may run.

A run directory lists the files that hold its model and their digests when the model was described, in `code.json`. A worker
runs these bytes and no others. If the directory was written by hand, it runs no code.
"""

import hashlib
import sys
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, read_bytes, read_json

CODE = "code.json"
"""The file in the description of a model that lists the digests of the described files."""
_allowed: dict[str, str] | None = None
"""The digests of the files that the current process may run, by path; None before a run directory has been read."""
_ran: dict[str, str] = {}
"""The digests of the files that this process has run, by path."""


def read(path: str) -> bytes:
    """Reads a file of code that is about to be run.

    Raises:
        ConfigError: The file cannot be read, or is not the file with which the run directory was prepared.
    """
    try:
        content = read_bytes(path)
    except Unreadable as error:
        raise ConfigError(f"{path} cannot be run: {error}; name a Python file.") from None
    _ran[path] = digest = hashlib.sha256(content).hexdigest()
    if _allowed is not None and _allowed.get(path) != digest:
        raise ConfigError(
            f"{path} is not the file that this run was prepared with; repeat the command that prepared it."
        )
    return content


def ran() -> dict[str, str]:
    """Returns the files that the current process has run, with their digests."""
    return dict(_ran)


def allow_only(described: str) -> None:
    """Allows this process to run only the files from which a description was made.

    Args:
        described: The folder of the description.

    Raises:
        ConfigError: The description does not list the files.
    """
    global _allowed
    _allowed = _described(described)


def digests(described: str) -> list[str]:
    """Returns the digests of the files from which a description was made, sorted and without duplicates.

    Args:
        described: The folder of the description.

    Raises:
        ConfigError: The description does not list the files.
    """
    return sorted(set(_described(described).values()))


def packages() -> list[str]:
    """Returns the metadata folders of installed packages, most with a version: "torch-2.13.0.dist-info", "mine.egg-info".

    Only names are read, so a package that is edited in place, or installed again with the same version, is not noticed.
    """
    folders = [Path(each) for each in sys.path if each and Path(each).is_dir()]
    kinds = ("*.dist-info", "*.egg-info")
    return sorted({path.name for folder in folders for kind in kinds for path in folder.glob(kind)})


def _described(folder: str) -> dict[str, str]:
    path = Path(folder) / CODE
    try:
        found = read_json(path)
        if not isinstance(found, dict) or not all(isinstance(digest, str) for digest in found.values()):
            raise Unreadable("it has other values than digests")
    except Unreadable as error:
        raise ConfigError(f"{path} cannot be read: {error}; prepare the run again.") from None
    return found

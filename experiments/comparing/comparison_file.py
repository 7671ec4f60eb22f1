"""`compare.toml`: a comparison as a file, its keys the flags of `samestep compare` with underscores for dashes.

Code that it names is announced before it runs, and refused if it changed since the file was written.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from samestep.common.cell import parse_cells
from samestep.common.errors import ConfigError, unknown
from samestep.common.files.reading import Unreadable, read_sha256, read_toml
from samestep.common.files.writing import replacing
from samestep.common.flags import flags
from samestep.common.runtime.directory import COMPARISON
from samestep.common.techniques import Techniques
from samestep.common.workload.declaration import split_file
from samestep.experiments.comparing.comparison_request import SHARED, ComparisonConfig, Given, describe

DIGESTS = "sha256"
"""The table of `compare.toml` with the digest of each file of code."""
_NAMING = ("model", "data")
"""The settings that may name a Python file, with or without a name in it."""
NAME = COMPARISON
KEYS = (*flags(ComparisonConfig), *SHARED, *flags(Techniques), "vary", DIGESTS)
_LISTS = ("strategies", "require")
_HEADING = "# A comparison of samestep: `samestep compare --help` explains each key."


def read_file(path: Path) -> Given:
    """Reads the request in a file.

    Raises:
        ConfigError: There is no file, it is not TOML, or it has keys that no comparison has.
    """
    try:
        values = read_toml(path)
    except Unreadable as error:
        raise ConfigError(
            f"{path} cannot be read: {error}; name a file as {NAME} in the directory of a comparison."
        ) from None
    for key in values:
        if key not in KEYS:
            raise unknown(f"key of {path}", key, KEYS)
    try:
        describe(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return values


def write_file(path: Path, asked: ComparisonConfig) -> None:
    """Writes the file of a comparison, without defaults, completely or not at all.

    Args:
        path: The file.
        asked: The comparison.

    Raises:
        ConfigError: It cannot be written.
    """
    usual = settings(describe({})) | {"workload": None, "vary": asked.vary}
    told = {name: _spread(name, value) for name, value in settings(asked).items() if value != usual[name]}
    tables: dict[str, Mapping[str, object]] = {
        "vary": {name: list(map(_bare, values)) for name, values in asked.vary.items()},
        DIGESTS: find_digests(told),
    }
    document = told | {name: table for name, table in tables.items() if table}
    try:
        with replacing(path) as file:
            file.write(f"{_HEADING}\n{tomli_w.dumps(document)}".encode())
    except (OSError, UnicodeEncodeError) as error:
        raise ConfigError(f"{path} cannot be written ({error}); name another directory.") from None


def settings(asked: ComparisonConfig) -> dict[str, object]:
    """Returns everything that was given, keyed by the names of the flags."""
    parts = [
        ((*flags(ComparisonConfig), "vary"), asked),
        (SHARED, asked.base),
        (flags(Techniques), asked.base.techniques),
    ]
    return {name: getattr(values, name) for names, values in parts for name in names}


def _spread(name: str, value: object) -> object:
    """Returns a value as the file has it: a list of cells is an array."""
    return list(map(str, parse_cells(name, value))) if isinstance(value, str) and name in _LISTS else value


def _bare(text: str) -> object:
    """Returns a varied value as a number if TOML reads it as one, otherwise as text."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text
    return value if str(value) == text and isinstance(value, int | float) else text


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
            continue  # what needs the file reports the error
    return digests


def check_code(path: Path, stored: Given, beside: Given) -> list[str]:
    """Refuses code that has changed since the file of a comparison was written.

    Args:
        path: The file.
        stored: Its settings.
        beside: The user's other settings, whose code replaces that of the file.

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

"""`compare.toml`: a comparison as a file, its keys the flags of `samestep compare` with underscores for dashes."""

import json
import tomllib
from pathlib import Path

from samestep.common.errors import ConfigError, unknown
from samestep.common.files.reading import Unreadable, read_toml
from samestep.common.files.writing import replacing
from samestep.common.flags import flags
from samestep.common.runtime.directory import COMPARISON
from samestep.common.techniques import Techniques
from samestep.experiments.cli.arguments import split_cells
from samestep.experiments.comparing.asked import SHARED, ComparisonConfig, Given, describe
from samestep.experiments.comparing.named_code import DIGESTS, find_digests

NAME = COMPARISON
KEYS = (*flags(ComparisonConfig), *SHARED, *flags(Techniques), "vary", DIGESTS)
_LISTS = ("strategies", "require")


def read_file(path: Path) -> Given:
    """Reads what a file asks for.

    Raises:
        ConfigError: There is none, it is not TOML, or it asks for what no comparison has.
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
    """Writes a file that asks for a comparison, without what is at its default; whole or not at all.

    Args:
        path: The file.
        asked: The comparison.

    Raises:
        ConfigError: It cannot be written.
    """
    lines = ["# A comparison of samestep: `samestep compare --help` explains each key."]
    usual = settings(describe({})) | {"workload": None, "vary": asked.vary}
    told = {name: value for name, value in settings(asked).items() if value != usual[name]}
    lines += [f"{name} = {_value(name, value)}" for name, value in told.items()]
    if asked.vary:
        lines += ["", "[vary]", *(f"{name} = {_value(name, values)}" for name, values in asked.vary.items())]
    if digests := find_digests(told):
        lines += ["", f"[{DIGESTS}]", *(f"{_text(file)} = {_text(digest)}" for file, digest in digests.items())]
    try:
        with replacing(path) as file:
            file.write(("\n".join(lines) + "\n").encode())
    except (OSError, UnicodeEncodeError) as error:
        raise ConfigError(f"{path} cannot be written ({error}); name another directory.") from None


def settings(asked: ComparisonConfig) -> dict[str, object]:
    """Everything that was asked, by the names of the flags."""
    parts = [
        ((*flags(ComparisonConfig), "vary"), asked),
        (SHARED, asked.base),
        (flags(Techniques), asked.base.techniques),
    ]
    return {name: getattr(values, name) for names, values in parts for name in names}


def _value(name: str, value: object) -> str:
    if isinstance(value, str) and name in _LISTS:
        value = split_cells(name, value)
    if isinstance(value, list):
        return f"[{', '.join(_text(each) for each in value)}]"
    if isinstance(value, tuple):
        return f"[{', '.join(each if _is_bare(each) else _text(each) for each in value)}]"
    return _text(value) if isinstance(value, str) else str(value).lower()


def _text(value: str) -> str:
    """A string as TOML has it: as JSON, but for one character that TOML wants escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _is_bare(text: str) -> bool:
    """Whether a value reads back as the same text if it is written without quotes."""
    try:
        return str(tomllib.loads(f"value = {text}")["value"]) == text and not text.startswith(('"', "'", "[", "{"))
    except ValueError:
        return False

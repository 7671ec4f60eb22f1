"""`examples-ROLE.jsonl`: which examples a process gathered, with one line for each checkpoint and one at the end."""

import dataclasses
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, parse_json, read_bytes
from samestep.common.files.writing import reopen
from samestep.common.files.written import unseal
from samestep.common.gathering import GatheredPart, GatheredSteps

_NAME = re.compile(r"examples-([a-z]+-[0-9]+)\.jsonl")
_MOST_BYTES = 2**28


@dataclasses.dataclass(frozen=True)
class LedgerEntry:
    """A line of the ledger.

    Attributes:
        role: The process.
        attempt: The attempt at the run, from 1.
        gathered: What the process gathered.
    """

    role: str
    attempt: int
    gathered: GatheredSteps


def write_entries(directory: Path, role: str, attempt: int, gathered: Iterable[GatheredSteps]) -> None:
    """Adds lines to the file of a process. A line that an earlier attempt did not finish is cut off.

    Args:
        directory: The run directory.
        role: The process.
        attempt: The attempt at the run, from 1.
        gathered: What the process gathered.

    Raises:
        OSError: The file cannot be written.
    """
    lines = [json.dumps({"attempt": attempt} | dataclasses.asdict(each)) + "\n" for each in gathered]
    path = directory / f"examples-{role}.jsonl"
    if attempt > 1:
        unseal(path)
    with os.fdopen(reopen(path), "r+b") as file:
        file.seek(read_bytes(path, _MOST_BYTES).rfind(b"\n") + 1)
        file.truncate()
        file.write("".join(lines).encode())


def read_entries(directory: Path) -> list[LedgerEntry]:
    """Reads the ledger of a run.

    Raises:
        ConfigError: The run has no ledger, or a line of it is damaged.
    """
    roles = sorted(found[1] for name in os.listdir(directory) if (found := _NAME.fullmatch(name)))
    if not roles:
        raise ConfigError(f"{directory} holds no ledger of examples; a run with --save-every keeps one.")
    entries = []
    for role in roles:
        path = directory / f"examples-{role}.jsonl"
        try:
            *lines, _ = read_bytes(path, _MOST_BYTES).split(b"\n")
            entries += [_entry(role, parse_json(line)) for line in lines]
        except Unreadable as error:
            raise ConfigError(f"{path} cannot be read: {error}.") from None
    return entries


def _entry(role: str, values: object) -> LedgerEntry:
    try:
        parts = tuple(GatheredPart(*map(int, part)) for part in values["parts"])  # pyrefly: ignore
        first, end, sha256 = (values[name] for name in ("first", "end", "sha256"))  # pyrefly: ignore
        gathered = GatheredSteps(int(first), int(end), parts, str(sha256))
        entry = LedgerEntry(role, int(values["attempt"]), gathered)  # pyrefly: ignore
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Unreadable("a line is not what a run writes") from None
    is_odd = any(not 0 <= part.start < part.stop or not 0 <= part.position < part.positions for part in parts)
    if is_odd or not 0 <= gathered.first < gathered.end or not parts:
        raise Unreadable("a line is not what a run writes")
    return entry

"""Where every number comes from: the command that repeats each row, and the machine and versions it was measured with."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from samestep.common.runtime.records import RunResult
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.markup import Child, code, element, more, scrolling, table
from samestep.experiments.printing.text import size

_DIGITS = 12
"""Of a digest, to tell it from others."""
_HEADERS = ("row", "command that repeats it", "directory", "data and workload", "devices", "environment")
Facts = dict[str, str]
"""Name -> value, of the machine and the versions."""


def write(loaded: Loaded) -> Element:
    """Makes the section."""
    environments: list[Facts] = []
    rows = [_row(entry, environments) for entry in loaded.entries]
    runs = scrolling(table(_HEADERS, rows, class_="provenance"), "Commands and directories")
    return element("div", *(_environment(number, facts) for number, facts in enumerate(environments)), runs)


def _environment(number: int, facts: Facts) -> Element:
    is_first = "" if number == 0 else None
    return more(f"Environment {_letter(number)}", table(["what", "value"], facts.items()), open=is_first)


def _row(entry: Entry, environments: list[Facts]) -> list[Child]:
    name = element("span", entry.name, id=f"from-{entry.key}", class_=entry.framework)
    place, result = code(_place(entry.directories)), entry.result
    if result is None:
        return [name, element("span", entry.row.reason or entry.row.status, class_="note"), place, None, None, None]
    digests = f"data {result.dataset_sha256[:_DIGITS]}, workload {result.workload_digest[:_DIGITS]}"
    return [name, code(result.command), place, code(digests), result.device_note, _find(_facts(result), environments)]


def _place(directories: Sequence[Path]) -> str:
    """The directories of a row, those of several rounds in one spelling: runs/torch-ddp/{1,2,3}."""
    if len(directories) > 1 and len({directory.parent for directory in directories}) == 1:
        return f"{directories[0].parent}/{{{','.join(directory.name for directory in directories)}}}"
    return " ".join(map(str, directories))


def _find(facts: Facts, environments: list[Facts]) -> str:
    """The letter of the environment of a run. Runs share one if nothing that both know of it differs."""
    for number, known in enumerate(environments):
        if all(known.get(name, value) == value for name, value in facts.items()):
            known |= facts
            return _letter(number)
    environments.append(facts)
    return _letter(len(environments) - 1)


def _facts(result: RunResult) -> Facts:
    machine = {name: value for name, value in result.machine.items() if value not in (None, "")}
    if isinstance(memory := machine.pop("memory_bytes", None), int):
        machine["memory"] = size(memory)
    told = {**machine, **result.versions, "commit": result.git_commit or ""}
    told["schema of result.json"] = result.schema_version
    return {name.replace("_", " "): str(value) for name, value in told.items() if value}


def _letter(number: int) -> str:
    """A, B, ..., Z, A1, B1, ..."""
    rounds, place = divmod(number, 26)
    return f"{chr(ord('A') + place)}{rounds or ''}"

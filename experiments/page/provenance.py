"""The section on the source of every number: the command that repeats each row, and the machine and versions."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from samestep.common.runtime.records import RunResult
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.rendering import render
from samestep.experiments.printing.text import size

_DIGITS = 12
"""The number of characters of a digest that are shown."""
Facts = dict[str, str]
"""Name -> value, for the machine and the versions."""


def write(loaded: Loaded) -> Markup:
    """Makes the section."""
    environments: list[Facts] = []
    sources = [_source(entry, environments) for entry in loaded.entries]
    lettered = [(_letter(number), facts) for number, facts in enumerate(environments)]
    digests = {each["digests"] for each in sources if "digests" in each}
    content = {"sources": sources, "environments": lettered, "digests": digests.pop() if len(digests) == 1 else None}
    return render("provenance", content)


def _source(entry: Entry, environments: list[Facts]) -> dict[str, object]:
    """Returns the source of a row: its directories and, with a result, digests and the letter of its environment."""
    source: dict[str, object] = {"entry": entry, "place": _place(entry.directories)}
    if (result := entry.result) is None:
        return source
    digests = f"data {result.dataset_sha256[:_DIGITS]}, workload {result.workload_digest[:_DIGITS]}"
    return source | {"digests": digests, "environment": _find(_facts(result), environments)}


def _place(directories: Sequence[Path]) -> str:
    """Returns the directories of a row; those of several rounds are abbreviated: runs/torch-ddp/{1,2,3}."""
    if len(directories) > 1 and len({directory.parent for directory in directories}) == 1:
        return f"{directories[0].parent}/{{{','.join(directory.name for directory in directories)}}}"
    return " ".join(map(str, directories))


def _find(facts: Facts, environments: list[Facts]) -> str:
    """Returns the letter of the environment of a run. Runs share one if no fact that both recorded differs."""
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
    """Returns the letter with a number: A, B, ..., Z, A1, B1, ..."""
    rounds, place = divmod(number, 26)
    return f"{chr(ord('A') + place)}{rounds or ''}"

"""Where every number comes from: the command that repeats each row, and the machine and versions it was measured with."""

from xml.etree.ElementTree import Element

from samestep.common.runtime.records import RunResult
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.markup import Child, code, element, more, table
from samestep.experiments.text import size

_DIGITS = 12
"""Of a digest, to tell it from others."""
Circumstances = tuple[tuple[str, str], ...]
"""Name -> value, of what runs were made with."""


def write(loaded: Loaded) -> Element:
    """Makes the section."""
    made: dict[Circumstances, str] = {}
    rows = [_row(entry, made) for entry in loaded.entries]
    environments = [
        more(
            f"Environment {letter}",
            table(["", ""], ([name, value] for name, value in facts)),
            open_="" if first else None,
        )
        for first, (facts, letter) in zip([True] + [False] * len(made), made.items(), strict=False)
    ]
    headers = ["row", "command that repeats it", "directory", "data and workload", "environment"]
    runs = element("div", table(headers, rows, class_="provenance"), class_="scroll", tabindex="0", role="region")
    runs.set("aria-label", "Commands and directories")
    return element("div", *environments, runs)


def _row(entry: Entry, made: dict[Circumstances, str]) -> list[Child]:
    name = element("span", entry.name, id=f"from-{entry.key}", class_=entry.framework)
    places = element("ul", *(element("li", code(str(place))) for place in entry.directories), class_="plain")
    result = entry.result
    if result is None:
        return [name, element("span", entry.row.reason or entry.row.status, class_="note"), places, None, None]
    letter = made.setdefault(_circumstances(result), _letter(len(made)))
    digests = f"data {result.dataset_sha256[:_DIGITS]}, workload {result.workload_digest[:_DIGITS]}"
    return [name, code(result.command), places, code(digests), letter]


def _circumstances(result: RunResult) -> Circumstances:
    machine = {name: value for name, value in result.machine.items() if value not in (None, "")}
    if isinstance(memory := machine.get("memory_bytes"), int):
        machine = {name: value for name, value in machine.items() if name != "memory_bytes"} | {"memory": size(memory)}
    told = {**machine, **result.versions, "commit": result.git_commit or "", "devices": result.device_note}
    told["schema of result.json"] = str(result.schema_version)
    return tuple((name.replace("_", " "), str(value)) for name, value in told.items() if value)


def _letter(number: int) -> str:
    """A, B, ..., Z, A1, B1, ..."""
    rounds, place = divmod(number, 26)
    return f"{chr(ord('A') + place)}{rounds or ''}"

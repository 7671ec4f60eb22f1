"""The page: one file that opens anywhere, with its sections in reading order."""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from samestep.common.errors import count, name_some
from samestep.common.files.reading import read_text
from samestep.experiments.page import (
    losses,
    memory,
    observed,
    parity,
    provenance,
    rows,
    scaling,
    speed,
    step_parts,
    verdicts,
    wire,
)
from samestep.experiments.page.loaded import Loaded
from samestep.experiments.page.rendering import HERE, assembled

_NAMED = 3
"""The most comparisons that the title names."""


SECTIONS: Sequence[tuple[str, str, Callable[[Loaded], Markup | None]]] = (
    ("verdict", "Verdict", verdicts.write),
    ("rows", "Every row", rows.write),
    ("parity", "Parity", parity.write),
    ("losses", "Losses", losses.write),
    ("speed", "Speed", speed.write),
    ("step-parts", "Where the time goes", step_parts.write),
    ("scaling", "Scaling", scaling.write),
    ("memory", "Memory", memory.write),
    ("wire", "On the wire", wire.write),
    ("anatomy", "What each row holds and sends", observed.write_anatomies),
    ("timeline", "When each device did what", observed.write_timelines),
    ("provenance", "Where it comes from", provenance.write),
)
"""The anchor of each section, its title, and the function that writes it."""


def page(loaded: Loaded) -> str:
    """Returns the report as HTML.

    Args:
        loaded: The contents of the report.
    """
    there = [(name, title, content) for name, title, write in SECTIONS if (content := write(loaded)) is not None]
    return assembled(_title(loaded), _about(loaded), there, _script(there))


def _script(sections: Sequence[tuple[str, str, Markup]]) -> Markup:
    """Returns the script of the page. Only a page with timelines contains an external address, which a click opens."""
    files = ["page.js", *("timelines.js" for name, _, _ in sections if name == "timeline")]
    return Markup("".join(read_text(HERE / name) for name in files))


def _title(loaded: Loaded) -> str:
    """Returns the workload and the machine of a single comparison, or the names of several comparisons."""
    trained = [(entry, result) for facet in loaded.facets() for entry, result in facet.rows if not result.is_oracle]
    workloads = {facet.workload for facet in loaded.facets()}
    processors = {result.machine["cpu"] for _, result in trained}
    if trained and len(loaded.groups) == len(workloads) == 1:
        rows = {result.name: entry.name for entry, result in trained}
        subject = f"{len(rows)} strategies train" if len(rows) > 1 else f"{next(iter(rows.values()))} trains"
        cores = count(max(result.cores for _, result in trained), "core")
        where = f" on {cores} of {processors.pop()}" if len(processors) == 1 else ""
        return f"{subject} {workloads.pop()}{where}"
    return name_some([group.title for group in loaded.groups], _NAMED)


def _about(loaded: Loaded) -> str:
    """Returns the number of runs and rows of the report, with their workloads."""
    trained = list(dict.fromkeys(facet.workload for facet in loaded.facets()))
    runs = sum(len(entry.row.results) for entry in loaded.entries)
    named = f" of {name_some(trained, 4)}"
    name = f"{loaded.groups[0].title}: " if len(loaded.groups) == 1 else ""
    named = "" if name and len(trained) == 1 else named if trained else ""
    return f"{name}{count(len(loaded.entries), 'row')}, {count(runs, 'finished run')}{named}"

"""The anatomy of each row: what its devices hold, and what its observed step sent."""

import itertools
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from markupsafe import Markup

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.run import parse
from samestep.experiments.page.drawings.anatomy import anatomy
from samestep.experiments.page.loaded import MOST_DRAWN, Entry, Loaded, most_telling
from samestep.experiments.page.rendering import render

_HOW = (
    "From the footprints and sends of the step that each run took under observation. Left: what each device holds, to "
    "scale. Right: what is sent in which phase, and between whom."
)


def write(loaded: Loaded) -> Markup | None:
    """Makes the section; None if no row took a step that can be drawn."""
    found = _drawable(loaded)
    drawn = list(itertools.islice(found, MOST_DRAWN))
    left = "There are more rows: `samestep strategies CELL --picture` draws any strategy." if next(found, None) else ""
    alt = "What each device of a row holds, and what a step sends"
    content = {"note": f"{_HOW} {left}".strip(), "alt": alt, "kind": "Anatomy", "drawings": drawn}
    return render("drawings", content) if drawn else None


def _drawable(loaded: Loaded) -> Iterator[tuple[Entry, Element]]:
    rows = [(entry, entry.result) for entry in loaded.entries if entry.result and entry.framework != "numpy"]
    for entry, result in most_telling(rows):
        if result.compiled or not any(row.params_peak_bytes for row in result.processes):
            continue
        try:
            run = parse(result.config)
        except (ConfigError, Unavailable):
            continue  # its model, its data or its options are not here any more
        yield entry, anatomy(run, result)

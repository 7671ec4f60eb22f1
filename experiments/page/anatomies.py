"""The anatomy of each row: what its devices hold, and what its observed step sent."""

import itertools
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.run import parse
from samestep.experiments.page.drawings.anatomy import anatomy
from samestep.experiments.page.loaded import MOST_DRAWN, Entry, Loaded, most_telling
from samestep.experiments.page.markup import element, more, prose


def write(loaded: Loaded) -> Element | None:
    """Makes the section; None if no row took a step that can be drawn."""
    found = _drawable(loaded)
    drawn = [_figure(entry, drawing) for entry, drawing in itertools.islice(found, MOST_DRAWN)]
    left = "There are more rows: `samestep strategies CELL --picture` draws any strategy." if next(found, None) else ""
    note = element("p", *prose(f"{_HOW} {left}".strip()), class_="note")
    figure = element("figure", *drawn, aria_label="What each device of a row holds, and what a step sends")
    return element("div", note, figure) if drawn else None


def _figure(entry: Entry, drawing: Element) -> Element:
    place = element("div", drawing, class_="scroll", tabindex=0, role="region", aria_label=f"Anatomy of {entry.name}")
    return more(entry.name, place, data_row=entry.key)


_HOW = (
    "From the footprints and sends of the step that each run took under observation. Left: what each device holds, to "
    "scale. Right: what is sent in which phase, and between whom."
)


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

"""The timeline of each row whose run was traced."""

import itertools
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from markupsafe import Markup

from samestep.common.errors import ConfigError
from samestep.experiments.page.drawings.timeline import timeline
from samestep.experiments.page.loaded import MOST_DRAWN, Entry, Loaded, most_telling
from samestep.experiments.page.rendering import render
from samestep.experiments.printing.trace_file import load_trace

_HOW = (
    "The fastest of the steps that were traced after everything that counts. A bar is what a device computed, a thin line "
    "below it a transfer from where it is handed over to where it is done. Idle is where no operator ran for 0.1 ms. "
    "Tracing makes steps longer: compare lengths within a picture. Perfetto (ui.perfetto.dev) opens `trace.json` of a run."
)


def write(loaded: Loaded) -> Markup | None:
    """Makes the section; None if no run was traced."""
    found = _drawable(loaded)
    drawn = list(itertools.islice(found, MOST_DRAWN))
    left = "There are more traced rows, which are not drawn here." if next(found, None) else ""
    alt = "What each device of a row did when, in one traced step"
    content = {"note": f"{_HOW} {left}".strip(), "alt": alt, "kind": "Timeline", "drawings": drawn}
    return render("drawings", content) if drawn else None


def _drawable(loaded: Loaded) -> Iterator[tuple[Entry, Element | str]]:
    """Rows with their drawings, or the reasons why there is none."""
    # The oracle has no phases to show.
    rows = [(entry, entry.result) for entry in loaded.entries if entry.result and entry.framework != "numpy"]
    for entry, _ in most_telling(rows):
        for directory in entry.directories[:1]:
            try:
                if (trace := load_trace(directory)) is not None:
                    yield entry, timeline(trace, entry.name)
            except ConfigError as error:
                yield entry, str(error)

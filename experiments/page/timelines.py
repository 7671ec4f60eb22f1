"""The timeline of each row whose run was traced."""

from xml.etree.ElementTree import Element

from markupsafe import Markup

from samestep.common.errors import ConfigError
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.drawings.large_drawings import render_drawings
from samestep.experiments.page.drawings.timeline import timeline
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.printing.trace_file import load_trace

_HOW = (
    "The fastest of the steps that were traced after everything that counts. A bar is what a device computed, a thin line "
    "below it a transfer from where it is handed over to where it is done. Idle is where no operator ran for 0.1 ms. "
    "Tracing makes steps longer: compare lengths within a picture. Perfetto (ui.perfetto.dev) opens `trace.json` of a run."
)


def write(loaded: Loaded) -> Markup | None:
    """Makes the section; None if no run was traced."""
    more = "There are more traced rows, which are not drawn here."
    alt = "What each device of a row did when, in one traced step"
    return render_drawings(loaded, "Timeline", alt, _HOW, more, draw)


def draw(entry: Entry, result: RunResult) -> Element | str | None:
    """Draws the timeline of a row, or says why that cannot be; None without a trace.

    Args:
        entry: The row.
        result: What came of it.
    """
    try:
        trace = load_trace(entry.directories[0]) if entry.directories else None
        return trace and timeline(trace, entry.name)
    except ConfigError as error:
        return str(error)

"""Drawings of the observed step of each row: what its devices hold and send, and for a traced run the timeline of each."""

from xml.etree.ElementTree import Element

from markupsafe import Markup

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.run import parse
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.drawings.anatomy import anatomy
from samestep.experiments.page.drawings.large_drawings import render_drawings
from samestep.experiments.page.drawings.timeline import timeline
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.printing.trace_file import Trace, load_trace


def write_anatomies(loaded: Loaded) -> Markup | None:
    """Makes the section; None if no row took a step that can be drawn."""
    return render_drawings(loaded, "anatomy", draw_anatomy)


def draw_anatomy(entry: Entry, result: RunResult) -> Element | None:
    """Draws the anatomy of a row; None if nothing can be drawn.

    Args:
        entry: The row.
        result: What came of it.
    """
    if result.compiled or not any(row.params_peak_bytes for row in result.processes):
        return None
    try:
        return anatomy(parse(result.config), result)
    except (ConfigError, Unavailable):
        return None  # its model, its data or its options are not here any more


def write_timelines(loaded: Loaded) -> Markup | None:
    """Makes the section; None if no run was traced."""
    traces = {entry.directories: _trace_of(entry) for entry in loaded.entries}
    spans = [each.bounds(each.fastest()) for each in traces.values() if isinstance(each, Trace)]
    length = max((end - start for start, end in spans), default=0.0)

    def drawn(entry: Entry, result: RunResult) -> Element | str | None:
        trace = traces[entry.directories]
        return timeline(trace, entry.name, length=length) if isinstance(trace, Trace) else trace

    return render_drawings(loaded, "timeline", drawn, is_zoomed=True)


def _trace_of(entry: Entry) -> Trace | str | None:
    """Reads the trace of a row, or says why that cannot be; None without a trace."""
    try:
        return load_trace(entry.directories[0]) if entry.directories else None
    except ConfigError as error:
        return str(error)


def draw_timeline(entry: Entry, result: RunResult) -> Element | str | None:
    """Draws the timeline of a row on its own axis, or says why it cannot be drawn; None without a trace.

    Args:
        entry: The row.
        result: What came of it.
    """
    trace = _trace_of(entry)
    return timeline(trace, entry.name) if isinstance(trace, Trace) else trace

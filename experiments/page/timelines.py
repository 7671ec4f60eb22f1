"""The timeline of each row whose run was traced."""

from xml.etree.ElementTree import Element

from markupsafe import Markup

from samestep.common.errors import ConfigError
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.drawings.large_drawings import render_drawings
from samestep.experiments.page.drawings.timeline import timeline
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.printing.trace_file import Trace, load_trace


def write(loaded: Loaded) -> Markup | None:
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


def draw(entry: Entry, result: RunResult) -> Element | str | None:
    """Draws the timeline of a row on an axis of its own, or says why that cannot be; None without a trace.

    Args:
        entry: The row.
        result: What came of it.
    """
    trace = _trace_of(entry)
    return timeline(trace, entry.name) if isinstance(trace, Trace) else trace

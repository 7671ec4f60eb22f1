"""The anatomy of each row: what its devices hold, and what its observed step sent."""

from xml.etree.ElementTree import Element

from markupsafe import Markup

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.run import parse
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.drawings.anatomy import anatomy
from samestep.experiments.page.drawings.large_drawings import render_drawings
from samestep.experiments.page.loaded import Entry, Loaded


def write(loaded: Loaded) -> Markup | None:
    """Makes the section; None if no row took a step that can be drawn."""
    return render_drawings(loaded, "anatomy", draw)


def draw(entry: Entry, result: RunResult) -> Element | None:
    """Draws the anatomy of a row; None if nothing of it can be drawn.

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

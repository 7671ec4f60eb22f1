"""Drawings of the observed step of each row: what its devices hold and send, and for a traced run the timeline of each.

The most informative rows are drawn, up to a number that a page can hold.
"""

import collections
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from samestep.common.catalog import strategy_info
from samestep.common.errors import ConfigError, Unavailable
from samestep.common.run import parse
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.drawings.anatomy import anatomy
from samestep.experiments.page.drawings.timeline import timeline
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.rendering import render
from samestep.experiments.printing.trace_file import Trace, load_trace

MOST_DRAWN = 32
"""The most rows that a section of large drawings shows, more than there are strategies."""
_REFERENCE, _ID = 20, 10
"""The approximate numbers of characters of a reference to a shared part of drawings, and of its id."""
Draw = Callable[[Entry, RunResult], Element | str | None]
"""Draws a row, says why it cannot be drawn, or returns None if there is nothing to draw."""


def write_anatomies(loaded: Loaded) -> Markup | None:
    """Makes the section; None if no row took a step that can be drawn."""
    return render_drawings(loaded, "anatomy", draw_anatomy)


def draw_anatomy(entry: Entry, result: RunResult) -> Element | None:
    """Draws the anatomy of a row; None if nothing can be drawn.

    Args:
        entry: The row.
        result: Its result.
    """
    if result.compiled or not any(row.params_peak_bytes for row in result.processes):
        return None
    try:
        return anatomy(parse(result.config), result)
    except (ConfigError, Unavailable):
        return None  # its model, its data or its options no longer exist here


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
    """Reads the trace of a row; returns why it cannot be read, or None if there is none."""
    try:
        return load_trace(entry.directories[0]) if entry.directories else None
    except ConfigError as error:
        return str(error)


def draw_timeline(entry: Entry, result: RunResult) -> Element | str | None:
    """Draws the timeline of a row on its own axis; returns why it cannot be drawn, or None if there is no trace.

    Args:
        entry: The row.
        result: Its result.
    """
    trace = _trace_of(entry)
    return timeline(trace, entry.name) if isinstance(trace, Trace) else trace


def render_drawings(loaded: Loaded, kind: str, draw: Draw, is_zoomed: bool = False) -> Markup | None:
    """Renders a section; None if there is nothing to draw. The oracle, which has no phases to show, is left out.

    Args:
        loaded: The contents of the report.
        kind: The kind of drawing; its template explains how to read it.
        draw: Draws a row.
        is_zoomed: Whether the page zooms into all of them together, so they are shown at once and share no parts.
    """
    found = _drawn(loaded, draw)
    drawn = list(itertools.islice(found, MOST_DRAWN))
    has_more, common = next(found, None) is not None, None
    if not is_zoomed:
        shared, common = _share_parts([each for _, each in drawn if isinstance(each, Element)])
        drawn = [(entry, shared.pop(0) if isinstance(each, Element) else each) for entry, each in drawn]
    content = {"has_more": has_more, "kind": kind, "drawings": drawn, "common": common, "is_open": is_zoomed}
    return render(kind, content) if drawn else None


def _drawn(loaded: Loaded, draw: Draw) -> Iterator[tuple[Entry, Element | str]]:
    rows = [(entry, entry.result) for entry in loaded.entries if entry.result and not entry.result.is_oracle]
    for entry, result in most_telling(rows):
        if (drawing := draw(entry, result)) is not None:
            yield entry, drawing


def most_telling(rows: Sequence[tuple[Entry, RunResult]]) -> list[tuple[Entry, RunResult]]:
    """Orders rows for a section with a limit: one of each strategy first, counterparts side by side, then further rows.

    Args:
        rows: The rows with their results, in the order of the report.
    """
    names = [result.name for _, result in rows]
    place = {name: number for number, name in reversed(list(enumerate(names)))}
    times = [names[:number].count(name) for number, name in enumerate(names)]

    def order(number: int) -> tuple[int, int, int]:
        own, (_, result) = place[names[number]], rows[number]
        other = strategy_info(result.framework, result.strategy).counterpart
        return times[number], min(own, place.get(other, own)), own

    return [rows[number] for number in sorted(range(len(rows)), key=order)]


def _share_parts(drawings: Sequence[Element]) -> tuple[list[Element], Element]:
    """Moves parts that several drawings share into one place, wherever references to them are shorter.

    Returns:
        Copies of the drawings with references, and an invisible drawing with the shared parts.
    """
    shared = [copy.deepcopy(drawing) for drawing in drawings]
    held = Element("svg", {"class": "drawing common", "aria-hidden": "true"})
    parts, ids = SubElement(held, "defs"), dict[str, str]()
    level = list(shared)
    while level:  # whole groups first, then the parts of groups that differ, and of shared groups
        spelled = [[_spell(part) for part in parent] for parent in level]
        fresh: list[Element] = []
        times = collections.Counter(text for texts in spelled for text in texts)
        for parent, texts in zip(level, spelled, strict=True):
            for place, (part, text) in enumerate(zip(list(parent), texts, strict=True)):
                if text not in ids and _is_worth_it(part, len(text), times[text]):
                    ids[text] = f"p{len(ids)}"
                    parts.append(copy.deepcopy(part))
                    parts[-1].set("id", ids[text])
                    fresh += [parts[-1]] if part.tag == "g" else []
                if text in ids:
                    parent[place] = Element("use", {"href": f"#{ids[text]}"})
        level = [*(part for parent in level for part in parent if part.tag == "g"), *fresh]
    return shared, held


def _is_worth_it(part: Element, length: int, times: int) -> bool:
    """Returns whether references to a part are shorter than its copies; titles and descriptions stay in their drawings."""
    return part.tag not in ("title", "desc", "use") and times * (length - _REFERENCE) > length + _ID


def _spell(part: Element) -> str:
    return tostring(part, encoding="unicode").replace(" />", "/>")

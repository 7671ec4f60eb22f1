"""Sections of large drawings, a row each: those that tell most are drawn, up to a number that a page can hold."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from xml.etree.ElementTree import Element

from markupsafe import Markup

from samestep.common.catalog import strategy_info
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.drawings.common_parts import share_parts
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.rendering import render

MOST_DRAWN = 32
"""Rows that a section of large drawings shows: more than there are strategies."""
Draw = Callable[[Entry, RunResult], Element | str | None]
"""Draws a row, says why it cannot be drawn, or returns None where there is nothing to draw."""


def render_drawings(
    loaded: Loaded, kind: str, alt: str, how: str, more: str, draw: Draw, is_zoomed: bool = False
) -> Markup | None:
    """Renders a section; None if there is nothing to draw. The oracle, which has no phases to show, is left out.

    Args:
        loaded: What the report is about.
        kind: What a drawing is.
        alt: What the drawings show.
        how: How to read them.
        more: What is said if not all rows are drawn.
        draw: Draws a row.
        is_zoomed: Whether the page zooms into all of them together, so that they are shown at once, and each has its own parts.
    """
    found = _drawn(loaded, draw)
    drawn = list(itertools.islice(found, MOST_DRAWN))
    note = f"{how} {more if next(found, None) else ''}".strip()
    common = None
    if not is_zoomed:
        shared, common = share_parts([each for _, each in drawn if isinstance(each, Element)])
        drawn = [(entry, shared.pop(0) if isinstance(each, Element) else each) for entry, each in drawn]
    content = {"note": note, "alt": alt, "kind": kind, "drawings": drawn, "common": common, "is_open": is_zoomed}
    return render("drawings", content) if drawn else None


def _drawn(loaded: Loaded, draw: Draw) -> Iterator[tuple[Entry, Element | str]]:
    rows = [(entry, entry.result) for entry in loaded.entries if entry.result and entry.framework != "numpy"]
    for entry, result in most_telling(rows):
        if (drawing := draw(entry, result)) is not None:
            yield entry, drawing


def most_telling(rows: Sequence[tuple[Entry, RunResult]]) -> list[tuple[Entry, RunResult]]:
    """Orders rows for a section that draws only so many: one of each strategy first, twins side by side, then further rows.

    Args:
        rows: The rows with their results, in the order of the report.
    """
    spelled = [(result.framework, result.strategy) for _, result in rows]
    place = {name: number for number, name in reversed(list(enumerate(spelled)))}
    times = [spelled[:number].count(name) for number, name in enumerate(spelled)]

    def order(number: int) -> tuple[int, int, int]:
        own = place[spelled[number]]
        framework, _, strategy = strategy_info(*spelled[number]).twin.partition(":")
        return times[number], min(own, place.get((framework, strategy), own)), own

    return [rows[number] for number in sorted(range(len(rows)), key=order)]

"""The page itself: one file that opens anywhere, with its sections in the order in which they are read."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from samestep.common.files.reading import read_text
from samestep.experiments.page import (
    anatomies,
    losses,
    memory,
    parity,
    provenance,
    rows,
    scaling,
    speed,
    timelines,
    verdicts,
    wire,
)
from samestep.experiments.page.loaded import Loaded
from samestep.experiments.page.markup import element, html
from samestep.experiments.printing.text import count

_NAMED = 3
"""Comparisons, in the title."""
HERE = Path(__file__).parent
"""Where the style sheet and the script are."""


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        name: Its anchor.
        title: Its heading, and its link at the top.
        write: Makes its content; None if these runs have nothing of it.
    """

    name: str
    title: str
    write: Callable[[Loaded], Element | None]


SECTIONS: Sequence[Section] = (
    Section("verdict", "Verdict", verdicts.write),
    Section("rows", "Every row", rows.write),
    Section("parity", "Parity", parity.write),
    Section("losses", "Losses", losses.write),
    Section("speed", "Speed", speed.write),
    Section("scaling", "Scaling", scaling.write),
    Section("memory", "Memory", memory.write),
    Section("wire", "On the wire", wire.write),
    Section("anatomy", "What each row holds and sends", anatomies.write),
    Section("timeline", "When each device did what", timelines.write),
    Section("provenance", "Where it comes from", provenance.write),
)


def page(loaded: Loaded) -> str:
    """The report as HTML.

    Args:
        loaded: What it is about.
    """
    written = [(section, section.write(loaded)) for section in SECTIONS]
    there = [(section, content) for section, content in written if content is not None]
    links = [element("a", section.title, href=f"#{section.name}") for section, _ in there]
    nav = element("nav", *links, aria_label="Sections")
    heading = element("header", element("p", "samestep report"), element("h1", _title(loaded)), _about(loaded), nav)
    whole = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", f"samestep report: {_title(loaded)}"),
            _raw("style", "page.css"),
            _raw("style", "drawing.css"),
        ),
        element("body", heading, element("main", *(_section(*each) for each in there)), _raw("script", "page.js")),
        lang="en",
    )
    return f"<!doctype html>\n{html(whole)}\n"


def _title(loaded: Loaded) -> str:
    titles = [group.title for group in loaded.groups]
    return ", ".join(titles[:_NAMED]) + (f" and {len(titles) - _NAMED} more" if titles[_NAMED:] else "")


def _about(loaded: Loaded) -> Element:
    """How much the report is about."""
    trained = list(dict.fromkeys(facet.workload for facet in loaded.facets()))
    runs = sum(len(entry.row.results) for entry in loaded.entries)
    named = f" of {', '.join(trained[:4])}" + (f" and {len(trained) - 4} more" if trained[4:] else "")
    return element("p", f"{count(len(loaded.entries), 'row')}, {count(runs, 'finished run')}{named if trained else ''}")


def _section(section: Section, content: Element) -> Element:
    heading = element("h2", section.title, id=f"{section.name}-title")
    return element("section", heading, content, id=section.name, aria_labelledby=f"{section.name}-title")


def _raw(name: str, file: str) -> Element:
    """A style sheet or a script: our own files, whose text HTML takes as it is."""
    made = element(name)
    made.text = read_text(HERE / file)
    return made

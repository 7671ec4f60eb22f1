"""The page itself: one file that opens anywhere, with its sections in the order in which they are read."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from samestep.experiments.page import anatomies, provenance, rows, timelines, verdicts
from samestep.experiments.page.loaded import Loaded
from samestep.experiments.page.markup import element, html

_HERE = Path(__file__).parent


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
    heading = element("header", element("h1", _title(loaded)), element("nav", *links, aria_label="Sections"))
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
    first, *others = (group.title for group in loaded.groups)
    return first + (f" and {len(others)} more" if others else "")


def _section(section: Section, content: Element) -> Element:
    heading = element("h2", section.title, id=f"{section.name}-title")
    return element("section", heading, content, id=section.name, aria_labelledby=f"{section.name}-title")


def _raw(name: str, file: str) -> Element:
    """A style sheet or a script: our own files, whose text HTML takes as it is."""
    made = element(name)
    made.text = (_HERE / file).read_text()
    return made

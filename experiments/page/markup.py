"""HTML as elements: whatever text comes from a run is escaped, and no markup is made of text."""

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

Child = Element | str | None
_NOT_TEXT = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What a page cannot show: the control characters of a log, halves of surrogate pairs."""


def element(name: str, /, *children: Child, **attributes: object) -> Element:
    """Makes an element of HTML or SVG.

    Args:
        name: Of the element.
        *children: Elements and text, in order; None is left out.
        **attributes: By name, with `class_` for class and `data_row` for data-row; None and False are left out.
    """
    given = {_spell(key): clean(str(value)) for key, value in attributes.items() if value is not None}
    made = Element(name, given)
    append(made, *children)
    return made


def append(parent: Element, *children: Child) -> None:
    """Adds children to an element, after those that it has.

    Args:
        parent: The element.
        *children: As for `element`.
    """
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif child and len(parent):
            parent[-1].tail = (parent[-1].tail or "") + clean(child)
        elif child:
            parent.text = (parent.text or "") + clean(child)


def clean(text: str) -> str:
    """Text with a replacement for each character that a page cannot show."""
    return _NOT_TEXT.sub("\ufffd", text)


def html(root: Element) -> str:
    """An element as HTML."""
    return tostring(root, encoding="unicode", method="html")


def table(headers: Iterable[Child], rows: Iterable[Iterable[Child]], **attributes: object) -> Element:
    """A table whose first column names the rows.

    Args:
        headers: One a column.
        rows: As many cells each.
        **attributes: Of the table.
    """
    head = element("tr", *(element("th", each, scope="col") for each in headers))
    body = []
    for first, *rest in rows:
        body.append(element("tr", element("th", first, scope="row"), *(element("td", each) for each in rest)))
    return element("table", element("thead", head), element("tbody", *body), **attributes)


def code(text: str) -> Element:
    """Something to type, or a name."""
    return element("code", text)


def prose(text: str) -> list[Child]:
    """A sentence in which `backticks` mark code."""
    parts = text.split("`")
    return [code(part) if index % 2 else part for index, part in enumerate(parts)]


def breakable(name: str) -> list[Child]:
    """A cell, as in `torch:pp+schedule=1f1b`, that may be broken between its parts."""
    first, *others = re.split(r"(?<=[:_])|(?=\+)", name)
    return [first, *(part for other in others for part in (element("wbr"), other))]


def more(summary: str, *children: Child, **attributes: object) -> Element:
    """What is shown on demand.

    Args:
        summary: What it is.
        *children: The content.
        **attributes: Of the element.
    """
    return element("details", element("summary", summary), *children, **attributes)


def scrolling(content: Element, label: str) -> Element:
    """What may be wider than the page, in a region that scrolls, by keyboard as well.

    Args:
        content: Such as a table.
        label: What it is, for those who do not see it.
    """
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def _spell(name: str) -> str:
    return name.rstrip("_").replace("_", "-") if name not in ("viewBox", "preserveAspectRatio") else name

"""Drawings as SVG elements, for a page that styles them, or as a file that is readable on light and dark backgrounds."""

import copy
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from samestep.common.files.reading import read_text

_HERE = Path(__file__).parents[1]


def drawing(width: float, height: float, title: str, description: str) -> Element:
    """Begins a drawing.

    Args:
        width: The width in pixels.
        height: The height in pixels.
        title: The title, in a few words.
        description: A description, for readers who cannot see the drawing.
    """
    root = Element("svg", {"class": "drawing", "role": "img", "viewBox": f"0 0 {width:g} {height:g}"})
    root.attrib |= {"width": f"{width:g}", "height": f"{height:g}"}
    SubElement(root, "title").text = title
    SubElement(root, "desc").text = description
    return root


def _spell(name: str, value: float | str) -> str:
    """Returns an attribute as text: pixels to a hundredth, and the value that a mark shows to six digits."""
    if isinstance(value, str):
        return value
    return f"{value:.6g}" if name.startswith("data") else f"{round(value, 2):g}"


def put(parent: Element, tag: str, kind: str = "", **attributes: float | str) -> Element:
    """Adds a shape.

    Args:
        parent: The parent of the shape.
        tag: The tag, such as "rect".
        kind: Its classes.
        **attributes: The SVG attributes; an underscore stands for a hyphen.
    """
    given = {name.replace("_", "-"): _spell(name, value) for name, value in attributes.items()}
    return SubElement(parent, tag, {**({"class": kind} if kind else {}), **given})


def write(parent: Element, x: float, y: float, words: str, kind: str = "") -> Element:
    """Adds a line of text.

    Args:
        parent: The parent of the text.
        x: The start, the end or the middle of the text, depending on its class.
        y: The y of its base line.
        words: The text.
        kind: Its classes.
    """
    found = put(parent, "text", kind, x=x, y=y)
    found.text = words
    return found


def stroke(parent: Element, kind: str, points: list[tuple[float, float]], width: float = 1.0) -> Element:
    """Adds a line through points.

    Args:
        parent: The parent of the line.
        kind: Its classes.
        points: The points from the first to the last.
        width: The width of the line.
    """
    path = "M" + "L".join(f"{round(x, 2):g} {round(y, 2):g}" for x, y in points)
    return put(parent, "path", kind, d=path, **({"stroke_width": width} if width != 1 else {}))


def file_of(root: Element) -> str:
    """Returns the text of an SVG file with a drawing, including its colours."""
    whole = copy.deepcopy(root)
    whole.set("xmlns", "http://www.w3.org/2000/svg")
    style = Element("style")
    colors, _, _ = read_text(_HERE / "page.css").partition("* {")
    style.text = colors + read_text(_HERE / "drawing.css")
    whole.insert(2, style)
    whole.insert(3, Element("rect", {"width": "100%", "height": "100%", "style": "fill: var(--paper)"}))
    ElementTree.indent(whole, " ")
    return ElementTree.tostring(whole, encoding="unicode") + "\n"

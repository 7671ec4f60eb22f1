"""Drawings as elements of SVG: for a page that styles them, or as a file that is readable in light and dark."""

import copy
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

STYLE = """
svg { --surface: #ffffff; --ink: #1b1f24; --muted: #59636e; --line: #c9d1d9; --band: #f3f5f7;
  --params: #2f6fbd; --grads: #c2571a; --optimizer: #2f8559; --idle: #b4bcc5; }
@media (prefers-color-scheme: dark) { svg { --surface: #0d1117; --ink: #e6edf3; --muted: #9aa4af; --line: #3d444d;
  --band: #171d25; --params: #6ea8ec; --grads: #f0935a; --optimizer: #5fbf8c; --idle: #57606a; } }
"""
"""The colours of a file; a page has its own, by the same names."""
SHAPES = """
.drawing { font-family: system-ui, -apple-system, "Segoe UI", sans-serif; }
.drawing text { fill: var(--ink); font-size: 12px; }
.drawing .title { font-size: 15px; font-weight: 600; }
.drawing .strong { font-weight: 600; }
.drawing .muted { fill: var(--muted); }
.drawing .small { font-size: 11px; }
.drawing .end { text-anchor: end; }
.drawing .middle { text-anchor: middle; }
.drawing .band { fill: var(--band); }
.drawing .line { stroke: var(--line); fill: none; }
.drawing .whole { stroke: var(--muted); fill: none; stroke-dasharray: 2 2; }
.drawing .params { fill: var(--params); }
.drawing .grads { fill: var(--grads); }
.drawing .optimizer { fill: var(--optimizer); }
.drawing .idle { fill: var(--idle); }
.drawing .peak { stroke: var(--params); fill: none; }
.drawing .wire { stroke: var(--ink); fill: none; }
.drawing .node { fill: var(--ink); }
.drawing .number { fill: var(--surface); font-weight: 600; font-size: 10px; text-anchor: middle; }
"""
"""What the classes of a drawing look like, in a page and in a file."""


def drawing(width: float, height: float, title: str, description: str) -> Element:
    """Begins a drawing.

    Args:
        width: In pixels.
        height: In pixels.
        title: What it shows, in a few words.
        description: What a reader sees in it, for those who do not see it.
    """
    root = Element("svg", {"class": "drawing", "role": "img", "viewBox": f"0 0 {width:g} {height:g}"})
    root.attrib |= {"width": f"{width:g}", "height": f"{height:g}", "aria-label": f"{title}. {description}"}
    SubElement(root, "title").text = title
    SubElement(root, "desc").text = description
    return root


def put(parent: Element, tag: str, kind: str = "", **attributes: float | str) -> Element:
    """Adds a shape.

    Args:
        parent: Of the shape.
        tag: Such as "rect".
        kind: Its classes.
        **attributes: As SVG has them; an underscore stands for a hyphen.
    """
    given = {name.replace("_", "-"): f"{v:.6g}" if isinstance(v, float | int) else v for name, v in attributes.items()}
    return SubElement(parent, tag, {**({"class": kind} if kind else {}), **given})


def write(parent: Element, x: float, y: float, words: str, kind: str = "") -> Element:
    """Adds a line of text.

    Args:
        parent: Of the text.
        x: Where it begins; or ends, or has its middle, as its class says.
        y: Of its base line.
        words: What it says.
        kind: Its classes.
    """
    found = put(parent, "text", kind, x=x, y=y)
    found.text = words
    return found


def stroke(parent: Element, kind: str, points: list[tuple[float, float]], width: float = 1.0) -> Element:
    """Adds a line through points.

    Args:
        parent: Of the line.
        kind: Its classes.
        points: From the first to the last.
        width: Of the line.
    """
    path = "M" + "L".join(f"{x:.6g} {y:.6g}" for x, y in points)
    return put(parent, "path", kind, d=path, stroke_width=width)


def file_of(root: Element) -> str:
    """The text of a file with a drawing: it brings its own colours."""
    whole = copy.deepcopy(root)
    whole.set("xmlns", "http://www.w3.org/2000/svg")
    style = Element("style")
    style.text = STYLE + SHAPES
    whole.insert(2, style)
    paper = Element("rect", {"width": "100%", "height": "100%", "style": "fill: var(--surface)"})
    whole.insert(3, paper)
    ElementTree.indent(whole, " ")
    return ElementTree.tostring(whole, encoding="unicode") + "\n"

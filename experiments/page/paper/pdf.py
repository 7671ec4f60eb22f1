"""Writes a drawing as a PDF of one page that is as large as the drawing: real text, no picture, no other package.

It supports only the elements of drawings, which `drawings.svg` makes: rectangles, circles, straight paths and lines of text in
groups. Text is Helvetica, which every viewer has, so no font is embedded.

Reference: PDF 1.7 (ISO 32000-1): 7.5 for the file, 8.5 for paths, 9.4 for text.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Set
from xml.etree.ElementTree import Element

from samestep.common.files.reading import read_text
from samestep.experiments.page.paper.helvetica import text_width
from samestep.experiments.page.rendering import HERE

POINTS = 72
"""The points of an inch."""
_CURVE = 0.5523
"""The distance of the handles of a Bezier curve from its ends, in radii, for a quarter of a circle."""
_STEP = re.compile(r"([MLHVZhvz])([^MLHVZhvz]*)")
_SPELLED = str.maketrans({"→": "->", "≤": "<=", "≥": ">=", "−": "-", "✓": "yes", "✗": "no"})
"""Replacements of characters that the encoding of the fonts does not have."""
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_MEDIA = re.compile(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")
_ANCHORS = {"end": 1.0, "middle": 0.5}


def pdf_of(root: Element, inches: float) -> bytes:
    """Returns the contents of the PDF file.

    Args:
        root: A drawing.
        inches: The width on paper; the height follows from it. A character outside of Western European fonts becomes a question
            mark.
    """
    width, height = (float(root.get(name, "0")) for name in ("width", "height"))
    scale = inches * POINTS / width
    drawn = "\n".join([f"{scale:.6g} 0 0 {-scale:.6g} 0 {height * scale:.6g} cm", *_draw(root)])
    content = drawn.encode("cp1252", errors="replace")
    fonts = "/Font << /F0 5 0 R /F1 6 0 R >>"
    box = f"[0 0 {width * scale:.6g} {height * scale:.6g}]"
    title = _literal(root.findtext("title") or "")
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /{} /Encoding /WinAnsiEncoding >>"
    parts = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox {box} /Resources << {fonts} >> /Contents 4 0 R >>".encode(),
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(content), content),
        *(font.format(name).encode() for name in ("Helvetica", "Helvetica-Bold")),
        f"<< /Title {title} /Producer (samestep) >>".encode("cp1252", errors="replace"),
    ]
    return _file(parts)


def _file(parts: list[bytes]) -> bytes:
    """Returns a file with these objects and the table of their offsets."""
    whole, places = bytearray(b"%PDF-1.4\n"), []
    for number, part in enumerate(parts, 1):
        places.append(len(whole))
        whole += b"%d 0 obj\n%b\nendobj\n" % (number, part)
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"xref\n0 {len(parts) + 1}\n0000000000 65535 f \n{table}trailer\n"
    end += f"<< /Size {len(parts) + 1} /Root 1 0 R /Info {len(parts)} 0 R >>\nstartxref\n{len(whole)}\n%%EOF\n"
    return bytes(whole) + end.encode()


def _draw(element: Element, around: Set[str] = frozenset()) -> Iterator[str]:
    around = {*around, *element.get("class", "").split()}
    for child in element:
        if child.tag in ("g", "svg"):
            yield f"q 1 0 0 1 {child.get('x', '0')} {child.get('y', '0')} cm"
            yield from _draw(child, around)
            yield "Q"
        elif child.tag == "text":
            yield _text(child, style_of(child, around))
        elif child.tag in ("rect", "circle", "path"):
            yield from _shape(child, style_of(child, around))


def _shape(element: Element, style: Mapping[str, str]) -> Iterator[str]:
    fill, line = style.get("fill", "#000000"), style.get("stroke", "none")
    if fill == line == "none":
        return
    dashes = " ".join(style.get("stroke-dasharray", "").replace(",", " ").split())
    yield f"q [{dashes}] 0 d {float(style.get('stroke-width', 1)):.6g} w {int(style.get('stroke-linecap') == 'round')} J"
    yield from (f"{_color(value)} {operator}" for value, operator in ((fill, "rg"), (line, "RG")) if value != "none")
    yield _OUTLINES[element.tag](element)
    yield {(True, True): "B", (True, False): "f", (False, True): "S"}[fill != "none", line != "none"]
    yield "Q"


def _color(value: str) -> str:
    """Returns the shares of red, green and blue of a colour that is spelled as in a style sheet: #1b1f24."""
    return " ".join(f"{int(value[place : place + 2], 16) / 255:.4g}" for place in (1, 3, 5))


def _rectangle(element: Element) -> str:
    return " ".join(element.get(name, "0") for name in ("x", "y", "width", "height")) + " re"


def _circle(element: Element) -> str:
    x, y, r = (float(element.get(name, "0")) for name in ("cx", "cy", "r"))
    c = _CURVE * r
    quarters = (
        (x + r, y + c, x + c, y + r, x, y + r),
        (x - c, y + r, x - r, y + c, x - r, y),
        (x - r, y - c, x - c, y - r, x, y - r),
        (x + c, y - r, x + r, y - c, x + r, y),
    )
    return f"{x + r:.6g} {y:.6g} m " + " ".join(" ".join(f"{v:.6g}" for v in quarter) + " c" for quarter in quarters)


def _path(element: Element) -> str:
    x, y, found = 0.0, 0.0, []
    for letter, numbers in _STEP.findall(element.get("d", "")):
        given = [float(each) for each in numbers.split()]
        if letter in "MLHh":
            x = given[0] + (x if letter == "h" else 0)
        if letter in "MLVv":
            y = given[-1] + (y if letter == "v" else 0)
        found.append("h" if letter in "Zz" else f"{x:.6g} {y:.6g} {'m' if letter == 'M' else 'l'}")
    return " ".join(found)


_OUTLINES = {"rect": _rectangle, "circle": _circle, "path": _path}


def _text(element: Element, style: Mapping[str, str]) -> str:
    words, size = (element.text or "").translate(_SPELLED), float(style.get("font-size", "12").removesuffix("px"))
    is_bold = float(style.get("font-weight", 400)) >= 600
    before = _ANCHORS.get(style.get("text-anchor", ""), 0.0) * text_width(words, size, is_bold)
    x, y = float(element.get("x", "0")) - before, float(element.get("y", "0"))
    font = f"/F{int(is_bold)} {size:.6g} Tf"
    return f"BT {_color(style['fill'])} rg {font} 1 0 0 -1 {x:.6g} {y:.6g} Tm {_literal(words)} Tj ET"


def _literal(words: str) -> str:
    escaped = re.sub(r"([\\()])", r"\\\1", words.translate(_SPELLED))
    return f"({escaped})"


@functools.cache
def colors() -> Mapping[str, str]:
    """Returns the variables of both style sheets, such as `--torch`, with their values for light backgrounds."""
    text = _MEDIA.sub("", _COMMENT.sub("", "".join(read_text(HERE / name) for name in ("page.css", "drawing.css"))))
    rules = [body for selector, body in _RULE.findall(text) if selector.strip() == ":root"]
    return {name: value for body in rules for name, value in _pairs(body).items() if name.startswith("--")}


@functools.cache
def _rules() -> tuple[tuple[frozenset[str], Mapping[str, str]], ...]:
    """Returns the rules of the style sheet of drawings, in order: the classes or the tag that it selects, and its properties."""
    text = _COMMENT.sub("", _MEDIA.sub("", read_text(HERE / "drawing.css")))
    return tuple(
        (frozenset(part.strip().removeprefix(".drawing ").lstrip(".").split(".")), _pairs(body))
        for selectors, body in _RULE.findall(text)
        for part in selectors.split(",")
    )


def _pairs(body: str) -> dict[str, str]:
    parts = (declaration.partition(":") for declaration in body.split(";"))
    return {name.strip(): value.strip() for name, _, value in parts if value}


def style_of(element: Element, around: Set[str] = frozenset()) -> dict[str, str]:
    """Returns the properties of an element from its attributes, its tag, its classes and its own style; later ones win.

    Args:
        element: A part of a drawing.
        around: The classes of the elements around it, from which it inherits.
    """
    own = {element.tag, *around, *element.get("class", "").split()}
    found = dict(element.attrib)
    for asked, properties in _rules():
        if asked <= own:
            found |= properties
    found |= _pairs(element.get("style", ""))
    return {name: _VARIABLE.sub(lambda match: colors()[match[1]], value) for name, value in found.items()}

"""The styles of a drawing's elements on white paper, for code without a browser."""

import functools
import re
from collections.abc import Mapping, Set
from xml.etree.ElementTree import Element

from samestep.common.files.reading import read_text
from samestep.experiments.page.rendering import HERE

_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_MEDIA = re.compile(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_VARIABLE = re.compile(r"var\((--[\w-]+)\)")


@functools.cache
def colors() -> Mapping[str, str]:
    """Returns the variables of both style sheets, such as `--torch`, with their values in the light."""
    text = _MEDIA.sub("", _COMMENT.sub("", "".join(read_text(HERE / name) for name in ("page.css", "drawing.css"))))
    rules = [body for selector, body in _RULE.findall(text) if selector.strip() == ":root"]
    return {name: value for body in rules for name, value in _pairs(body).items() if name.startswith("--")}


@functools.cache
def _rules() -> tuple[tuple[frozenset[str], Mapping[str, str]], ...]:
    """Returns the classes or the tag that a rule asks for, and what it says, in the order of the style sheet of drawings."""
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
    """Returns the properties of an element, by its attributes, its tag, its classes and its own style, in this order.

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

"""Fills templates. Text that comes from a run is escaped and never becomes markup."""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

import jinja2
from markupsafe import Markup, escape

from samestep.common.catalog import framework_info
from samestep.common.files.reading import read_text
from samestep.common.frameworks import ORACLE_FRAMEWORK
from samestep.common.workload.declaration import BUILDERS

HERE = Path(__file__).parent
"""The folder of the templates, the style sheets and the scripts."""
FRAMEWORKS = [(name, framework_info(name).title) for name in (*BUILDERS, ORACLE_FRAMEWORK)]
"""The frameworks of rows, by their classes in the style sheet, with their names; the oracle comes last."""
_NOT_TEXT = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that a page cannot show, such as control characters in a log and halves of surrogate pairs."""
_HYPHENED, _WHOLE = re.compile(r"(?<![\w-])--[a-z][\w-]*|\b[\d.]+e-\d+"), r'<span class="whole">\g<0></span>'
_WIDE = 36
"""The number of characters that fit on a phone's screen."""
LONG = 1_000_000
"""In a page with more characters, a browser lays out a section only when it comes near, so the page opens three times as
fast."""
_IMPLIED = re.compile(
    r"</t[dh]>\s*(?=<t[dh][ >]|</tr>)|</tr>\s*(?=<tr[ >]|</t(?:body|head)>)|</li>\s*(?=<li[ >]|</[ou]l>)"
)
"""End tags that HTML makes optional, and the space after them."""


def render(name: str, content: Mapping[str, object]) -> Markup:
    """Fills a template.

    Args:
        name: The name of its file in `templates`, without the suffix.
        content: The variables of the template, by name.
    """
    return Markup(_environment().get_template(f"{name}.html.j2").render(content))


def assembled(
    title: str,
    about: str,
    sections: Sequence[tuple[str, str, Markup]],
    script: Markup | None = None,
    style: Markup | None = None,
    program: str = "samestep report",
) -> str:
    """Puts a page together.

    Args:
        title: The title of the page.
        about: The text below it.
        sections: The anchor, the heading and the content of each section.
        script: The script of the page; None if it has none.
        style: A style sheet in addition to that of all pages.
        program: The command that writes the page.
    """
    styles = [_tight(Markup(read_text(HERE / file))) for file in ("page.css", "drawing.css")]
    content = {
        "program": program,
        "title": title,
        "about": about,
        "sections": [(name, heading, _short(part)) for name, heading, part in sections],
        "is_long": sum(len(part) for *_, part in sections) > LONG,
        "styles": styles + ([_tight(style)] if style else []),
        "script": script and Markup(re.sub(r"^\s+(//.*\n)?", "", script, flags=re.MULTILINE)),
    }
    return f"{render('page', content)}\n"


def _short(part: Markup) -> Markup:
    """Leaves out the end tags of cells, rows and items that the next tag implies (HTML, 13.1.2.4)."""
    return Markup(_IMPLIED.sub("", part))


def _tight(style: Markup) -> Markup:
    """Leaves out of a style sheet what only people need: comments, and space around punctuation."""
    plain = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL).replace(": ", ":")
    return Markup(re.sub(r"\s*([{};,])\s*", r"\1", plain).replace(";}", "}"))


@functools.cache
def _environment() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(HERE / "templates")
    found = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    found.filters |= {"attributes": attributes, "breakable": breakable, "command": command, "prose": prose, "svg": svg}
    found.globals["frameworks"] = FRAMEWORKS  # pyrefly: ignore[unsupported-operation]
    return found


def _finalize(value: object) -> object:
    return value if isinstance(value, Markup) else "" if value is None else clean(str(value))


def clean(text: str) -> str:
    """Returns a text in which characters that a page cannot show are replaced."""
    return _NOT_TEXT.sub("\ufffd", text)


def attributes(values: Mapping[str, object]) -> Markup:
    """Returns the attributes of an element as markup; those with the value None are left out."""
    there = ((name, value) for name, value in values.items() if value is not None)
    return Markup("".join(f' {name}="{_escaped(value)}"' for name, value in there))


def _escaped(value: object) -> str:
    return str(value) if type(value) in (int, float) else escape(clean(str(value)))


def prose(text: str) -> Markup:
    """Makes markup of a sentence in which `backticks` mark code; flags and numbers are not broken at hyphens."""
    parts = [str(escape(part)) for part in clean(text).split("`")]  # text, because Markup would escape the replacements
    said = (f"<code>{part}</code>" if index % 2 else _HYPHENED.sub(_WHOLE, part) for index, part in enumerate(parts))
    return Markup("".join(said).replace(" %", "\N{NO-BREAK SPACE}%"))


def command(text: str) -> Markup:
    """Makes markup of a command that may be broken only between its flags, and within a flag that is wider than a phone."""
    first, *flags = clean(text).split(" --")
    whole = (f"<i>--{escape(flag)}</i>" if len(flag) < _WIDE else f"--{escape(flag)}" for flag in flags)
    return Markup(" ".join([str(escape(first)), *whole]))


def breakable(name: str) -> Markup:
    """Makes markup of a cell, as in `torch:pp+schedule=1f1b`, that may be broken between its parts."""
    return Markup("<wbr>").join(re.split(r"(?<=[:_])(?! )|(?=\+)", clean(name)))


def svg(drawing: Element) -> Markup:
    """Makes markup of a drawing for a page, with empty SVG elements as self-closing tags."""
    return Markup(clean(tostring(drawing, encoding="unicode")).replace(" />", "/>"))

"""Builds the docs as a site: `make docs`. MkDocs calls this file as a hook, which adds generated pages and adjusts links.

The README becomes the first page. A file of the repository to which a page links becomes a page with its text.

References:
    https://www.mkdocs.org/user-guide/configuration/#hooks
"""

import importlib
import io
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.files.reading import read_text
from samestep.experiments.cli.commands import COMMANDS

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FILTER = Path(__file__).with_name("parity_filter.html")
"""The HTML that shows docs/parity.csv with a filter field."""
COLUMNS = 100
"""The width of the help of commands."""
NAMES = {"README.md": "index.md", "LICENSE": "license.md"}
"""Files of the repository whose pages have other names."""
STYLE = "<style>.md-typeset td:has(code){min-width:10rem}</style>"
"""The style of every page; tables scroll, so versions and flags in their cells are not broken."""
_LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Adds the pages that are not files of docs/.

    Args:
        files: The files in docs/.
        config: The configuration of MkDocs.
    """
    from mkdocs.structure.files import File

    for name, content in generated().items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Replaces links to files of the repository by links to the pages that the files became.

    Args:
        markdown: The text of the page in docs/.
        page: The page, which has its location.
        config: The configuration of MkDocs.
        files: All pages.
    """
    name = page.file.src_uri
    shown = markdown if name in generated() else relinked(markdown, f"docs/{name}", name)
    return f"{shown}\n## Every cell\n\n{read_text(FILTER)}" if name == "parity.md" else shown


def on_post_page(output: str, page: "Page", config: "MkDocsConfig") -> str:
    """Adds the style that every page has.

    Args:
        output: The page in HTML.
        page: Ignored; MkDocs passes it.
        config: The configuration of MkDocs.
    """
    return output.replace("</head>", f"{STYLE}</head>", 1)


def generated() -> dict[str, str]:
    """Returns name -> Markdown of every page that is not a file of docs/."""
    pages = {
        "cli.md": _commands(),
        "reference.md": "# Python\n\n::: samestep.api\n\n::: samestep.models\n\n::: samestep.reports\n",
    }
    for file in linked(ROOT / "README.md", *sorted(DOCS.glob("*.md"))):
        path = ROOT / file
        text = read_text(path) if path.is_file() else ""
        if path.suffix == ".md":
            pages[page_of(file)] = relinked(text, file, page_of(file))
        elif path.is_dir():
            names = sorted(each.name for each in path.iterdir() if not each.name.startswith(("_", ".")))
            pages[page_of(file)] = f"# {file}\n\n" + "\n".join(f"* `{name}`" for name in names) + "\n"
        else:
            language = "python" if path.suffix == ".py" else "text"
            pages[page_of(file)] = f"# {file}\n\n````{language}\n{text.rstrip()}\n````\n"
    return pages


def linked(*pages: Path) -> list[str]:
    """Returns the files outside docs/ to which pages link, directly or through other files; the README is first.

    Args:
        *pages: The pages to begin with.
    """
    found: dict[str, None] = {"README.md": None}
    waiting = [*pages]
    while waiting:
        page = waiting.pop()
        for target in _targets(page):
            if not target.startswith("docs/") and target not in found:
                found[target] = None
                waiting += [ROOT / target] if target.endswith(".md") else []
    return list(found)


def _targets(page: Path) -> Iterator[str]:
    for match in _LINK.finditer(read_text(page)):
        yield posixpath.normpath(posixpath.join(page.parent.relative_to(ROOT).as_posix(), match[1]))


def page_of(file: str) -> str:
    """Returns the page of the site that a file of the repository became.

    Args:
        file: The path of the file, relative to the repository.
    """
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    return NAMES.get(file) or (file if file.endswith(".md") else f"files/{file}.md")


def relinked(markdown: str, file: str, page: str) -> str:
    """Returns a page whose links lead to pages of the site.

    Args:
        markdown: The text, with links as in the repository.
        file: The path of the file, relative to the repository.
        page: The page of the site that the file becomes.
    """

    def turn(match: re.Match[str]) -> str:
        target = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(file), match[1])))
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{match[2] or ''})"

    turned = _LINK.sub(turn, markdown)
    return re.sub(r'((?:srcset|src)=")docs/', r"\1", turned)


def _commands() -> str:
    """Returns the page with the help of every command."""
    parts = ["# Commands\n"]
    os.environ["COLUMNS"] = str(COLUMNS)
    for name, about in COMMANDS.items():
        printed = io.StringIO()
        with redirect_stdout(printed), suppress(SystemExit):
            importlib.import_module(f"samestep.experiments.{name}").main(["--help"])
        parts.append(f"## {name}\n\n{about[0].upper()}{about[1:]}.\n\n```text\n{printed.getvalue().rstrip()}\n```\n")
    return "\n".join(parts)

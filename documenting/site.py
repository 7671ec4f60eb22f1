"""The docs as a site: `make docs`. MkDocs calls this file as a hook: it adds the pages that are made, and turns links to files.

The README becomes the first page. A file of the repository that a page points at becomes a page with its text.

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
"""Shows docs/parity.csv, with a field to filter it."""
COLUMNS = 100
"""Of the help of commands."""
NAMES = {"README.md": "index.md", "LICENSE": "license.md"}
"""Files of the repository whose pages are called otherwise."""
STYLE = "<style>.md-typeset td:has(code){min-width:10rem}</style>"
"""Of every page: tables scroll, so a version or a flag in one of their cells need not be torn apart."""
_LINK = re.compile(r"\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Adds the pages that are no files of docs/.

    Args:
        files: What is in docs/.
        config: The configuration of MkDocs.
    """
    from mkdocs.structure.files import File

    for name, content in generated().items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Turns links into the repository to the pages that their files became.

    Args:
        markdown: The page as it is in docs/.
        page: Says where it is.
        config: The configuration of MkDocs.
        files: All pages.
    """
    name = page.file.src_uri
    shown = markdown if name in generated() else relinked(markdown, f"docs/{name}", name)
    return f"{shown}\n## Every cell\n\n{read_text(FILTER)}" if name == "parity.md" else shown


def on_post_page(output: str, page: "Page", config: "MkDocsConfig") -> str:
    """Adds the style of every page.

    Args:
        output: The page in HTML.
        page: Says where it is.
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
    """Returns the files of the repository outside docs/ that pages point at, and those that these point at; README first.

    Args:
        *pages: Where to begin.
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
        file: Relative to the repository.
    """
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    return NAMES.get(file) or (file if file.endswith(".md") else f"files/{file}.md")


def relinked(markdown: str, file: str, page: str) -> str:
    """Returns a page whose links lead to pages of the site.

    Args:
        markdown: Its text, with links as in the repository.
        file: The file, relative to the repository.
        page: Its page of the site.
    """

    def turn(match: re.Match[str]) -> str:
        target = page_of(posixpath.normpath(posixpath.join(posixpath.dirname(file), match[1])))
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{match[2] or ''})"

    turned = _LINK.sub(turn, markdown)
    return re.sub(r'((?:srcset|src)=")docs/', r"\1", turned)


def _commands() -> str:
    """The help of every command."""
    parts = ["# Commands\n"]
    os.environ["COLUMNS"] = str(COLUMNS)
    for name, about in COMMANDS.items():
        printed = io.StringIO()
        with redirect_stdout(printed), suppress(SystemExit):
            importlib.import_module(f"samestep.experiments.{name}").main(["--help"])
        parts.append(f"## {name}\n\n{about[0].upper()}{about[1:]}.\n\n```text\n{printed.getvalue().rstrip()}\n```\n")
    return "\n".join(parts)

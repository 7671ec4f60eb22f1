"""The docs as a site: every link of a page leads to a page of it, and what is made is as the program says."""

import posixpath
import re

import pytest

from documenting import site
from samestep.experiments.cli.commands import COMMANDS


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Every page of the site, as MkDocs gets it."""
    docs = {
        path.name: site.relinked(path.read_text(), f"docs/{path.name}", path.name) for path in site.DOCS.glob("*.md")
    }
    return docs | site.generated()


def test_every_link_leads_to_a_page(pages: dict[str, str]) -> None:
    others = {path for pattern in ("pictures/*", "*.csv") for path in site.DOCS.glob(pattern)}
    files = {path.relative_to(site.DOCS).as_posix() for path in others}
    broken = {
        (page, match[1])
        for page, text in pages.items()
        for match in site._LINK.finditer(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        if posixpath.normpath(posixpath.join(posixpath.dirname(page), match[1])) not in {*pages, *files}
    }
    assert not broken


def test_every_page_of_the_navigation_is_there(pages: dict[str, str]) -> None:
    named = set(re.findall(r": ([\w-]+\.md)$", (site.ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert "index.md" in named
    assert named <= set(pages)
    assert {path.name for path in site.DOCS.glob("*.md")} <= named


def test_every_command_has_its_help(pages: dict[str, str]) -> None:
    for name in COMMANDS:
        assert f"## {name}\n" in pages["cli.md"]
    assert pages["cli.md"].count("usage: samestep") >= len(COMMANDS)


def test_links_between_folders_are_turned() -> None:
    said = "[a](docs/record.md#x) [b](LICENSE) [c](https://example.com) [d](#e)"
    assert (
        site.relinked(said, "README.md", "index.md")
        == "[a](record.md#x) [b](license.md) [c](https://example.com) [d](#e)"
    )
    assert site.relinked("[a](../museum/x.py)", "docs/museum.md", "museum.md") == "[a](files/museum/x.py.md)"

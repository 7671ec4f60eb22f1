"""What README and docs point at is there: links, anchors, files and tests; external links are well-formed. No network."""

import itertools
import re
import unicodedata
import urllib.parse
from collections import Counter
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from benchmarks.code_size import PRODUCT

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
TESTS = {name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
TREE = re.compile(r"(?:common|torch_impl|tf_impl|experiments|samestep|benchmarks|documenting|tests|docs)/[\w./-]*")


def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them; a heading that comes twice gets a number."""
    found: Counter[str] = Counter()
    names = set()
    blocks = tokens(page)
    for opening, content in itertools.pairwise(blocks):
        if opening.type == "heading_open":
            text = "".join(child.content for child in content.children or [])
            slug = re.sub(r"[^\w\- ]", "", unicodedata.normalize("NFC", text).lower()).replace(" ", "-")
            names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
            found[slug] += 1
    return names


def inline(page: Path, kind: str) -> list[Token]:
    return [child for block in tokens(page) for child in block.children or [] if child.type == kind]


def broken(page: Path, target: str) -> str:
    """What is wrong with a link; "" if nothing is."""
    parts = urllib.parse.urlsplit(target)
    if parts.scheme:
        return "" if parts.scheme == "https" and "." in parts.netloc else "an external link is https://host/..."
    file = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
    if not file.exists() or not file.is_relative_to(ROOT):
        return "no such file"
    if parts.fragment and parts.fragment not in anchors(file):
        return f"no such heading; there are {', '.join(sorted(anchors(file)))}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = {str(link.attrs["href"]) for link in inline(page, "link_open")}
    targets |= {str(image.attrs["src"]) for image in inline(page, "image")}
    wrong = {target: reason for target in targets if (reason := broken(page, target))}
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_test_that_is_named_exists(page: Path) -> None:
    named = [code.content for code in inline(page, "code_inline")]
    files = {name for name in named if TREE.fullmatch(name) and "NAME" not in name}
    assert not {name for name in files if not (ROOT / name).exists()}
    assert not {name for name in named if re.fullmatch(r"test_\w+", name) and name not in TESTS}


def test_every_page_that_the_product_names_exists() -> None:
    code = "\n".join(path.read_text() for name in PRODUCT for path in (ROOT / name).rglob("*.py"))
    targets = set(re.findall(r"docs/[\w-]+\.md(?:#[\w-]+)?", code))
    assert "docs/glossary.md" in targets
    assert not {target: reason for target in targets if (reason := broken(ROOT / "README.md", target))}


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("docs/missing.md", "no such file"),
        ("../outside.md", "no such file"),
        ("docs/same-step.md#no-such-heading", "no such heading"),
        ("#no-such-heading", "no such heading"),
        ("http://example.com", "an external link"),
        ("https://nowhere", "an external link"),
    ],
)
def test_a_broken_link_is_found(target: str, reason: str) -> None:
    assert broken(ROOT / "README.md", target).startswith(reason)


def test_a_good_link_is_none() -> None:
    assert not broken(ROOT / "README.md", "docs/same-step.md#what-is-excluded-and-why")
    assert not broken(ROOT / "docs" / "glossary.md", "../README.md#start")
    assert not broken(ROOT / "README.md", "https://example.com/page#part")


def test_the_glossary_stays_short() -> None:
    """Eighty words of our own are as many as a reader can be asked to learn; the field's words need no entry."""
    words = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)[2:]
    assert words == sorted(words, key=str.lower)
    assert len(words) <= 80

"""The page on paper, as Chromium prints it: everything that is folded is there, in light colours, and nothing is torn apart."""

import base64
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from samestep.experiments.page import losses, memory, speed, wire
from samestep.experiments.page.loaded import Loaded
from tests.page.pdfs import text_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

Opened = Callable[..., "Page"]


def on_paper(page: "Page") -> "CDPSession":
    """Has a page look as it is printed for a reader whose screen is dark."""
    session = page.context.new_cdp_session(page)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    session.send("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    return session


@pytest.fixture(scope="module")
def printed(browser: "Browser", report: Path) -> str:
    """The text of the page's PDF, without spaces, since narrow columns break names. The style sheet alone unfolds: no script."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    data = on_paper(page).send("Page.printToPDF", {"printBackground": True})["data"]
    context.close()
    return squeezed(text_of(base64.b64decode(data)))


def squeezed(words: str) -> str:
    return "".join(words.split())


def test_every_row_its_numbers_and_its_command_are_on_paper(printed: str, loaded: Loaded) -> None:
    assert len(loaded.entries) > 10
    for entry in loaded.entries:
        assert squeezed(entry.name) in printed
        assert not entry.result or squeezed(entry.result.command) in printed


def test_what_a_figure_draws_is_on_paper_as_a_table(printed: str, loaded: Loaded) -> None:
    shown = 0
    for facet, make in itertools.product(loaded.facets(), (speed.plot, memory.plot, wire.plot)):
        if (plot := make(facet)) is None:
            continue
        assert all(squeezed(header) in printed for header in plot.numbers.headers)
        for name, values in plot.numbers.rows:
            assert squeezed(name + "".join(values)) in printed
            shown += len(values)
    for facet in loaded.facets():
        panels = dict(losses.panels(facet))
        for entry, result in facet.rows if panels else ():
            assert squeezed(f"{entry.name}{result.losses[0]:.6g}{result.losses[-1]:.6g}") in printed
            shown += 1
    assert shown > 50


def test_paper_is_white_and_has_no_control_whatever_the_screen_is(opened: Opened) -> None:
    page = opened(scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    session = on_paper(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    seen = "[...document.querySelectorAll('input, .legend button, nav a, output')].filter(each => each.getClientRects().length)"
    assert page.evaluate(f"{seen}.map(each => each.outerHTML.slice(0, 80))") == []
    session.detach()


def test_no_row_mark_or_card_is_torn_between_two_pages(opened: Opened) -> None:
    page = opened()
    session = on_paper(page)
    for kind in ("tr", ".lines > [data-row]", ".panel", ".drawing", ".answers div"):
        styles = page.evaluate(
            f"[...document.querySelectorAll('{kind}')].map(each => getComputedStyle(each).breakInside)"
        )
        assert styles and set(styles) == {"avoid"}, kind
    session.detach()

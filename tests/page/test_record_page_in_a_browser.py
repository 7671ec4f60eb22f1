"""The page on records in a real browser: every mark is where its number belongs, inside its frame, and can be told apart."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from samestep.experiments.page.records.record_page import report_records
from tests.page.conftest import opening
from tests.page.recorded_pairs import made_pairs
from tests.page.test_marks_in_a_browser import CONTRASTS, FRAMES, NEAR, WIDTHS, place

if TYPE_CHECKING:
    from playwright.sync_api import Page

PLACES = """() => [...document.querySelectorAll('.point')].map(mark => {
    const frame = mark.closest('.frame');
    const [outer, box] = [frame, mark].map(each => each.getBoundingClientRect());
    const [low, high] = frame.dataset.x.split(' ').map(Number);
    const middle = (box.left + box.right) / 2 - outer.left;
    return {low, high, scale: 'linear', width: outer.width, at: Number(mark.dataset.at), middle};
})"""
BEYOND = """() => [...document.querySelectorAll('body *')]
    .filter(each => each.getClientRects().length && !each.closest('svg, .scroll'))
    .filter(each => each.getBoundingClientRect().right > innerWidth + 1)
    .map(each => `${each.tagName} ${each.className}`)"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    below = tmp_path_factory.mktemp("pages")
    pairs = made_pairs(tmp_path_factory)
    written = {name: below / f"{name}.html" for name in pairs}
    for name, path in written.items():
        path.write_text(report_records(pairs[name], "html"))
    return written


@pytest.fixture(
    scope="module", params=[WIDTHS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in WIDTHS[1:])]
)
def opened(request: pytest.FixtureRequest, browser: object, pages: dict[str, Path]) -> dict[str, "Page"]:
    found = {}
    with_pages = [opening(browser, path) for path in pages.values()]
    for name, each in zip(pages, with_pages, strict=True):
        found[name] = each.__enter__()(request.param)
    yield found
    for each in with_pages:
        each.__exit__(None, None, None)


def test_projections_are_where_they_belong(opened: dict[str, "Page"]) -> None:
    counted = 0
    for page in opened.values():
        for frame in page.evaluate(FRAMES):
            for mark in frame["marks"]:
                if "value" in mark["data"]:
                    wanted = frame["height"] - place(float(mark["data"]["value"]), frame, frame["height"])
                    assert (mark["top"] + mark["bottom"]) / 2 == pytest.approx(wanted, abs=NEAR), mark
                    counted += 1
        for mark in page.evaluate(PLACES):
            assert mark["middle"] == pytest.approx(place(mark["at"], mark, mark["width"]), abs=NEAR), mark
    assert counted > 100


def test_nothing_leaves_its_frame_or_the_page(opened: dict[str, "Page"]) -> None:
    curves = 0
    for page in opened.values():
        for frame in page.evaluate(FRAMES):
            for mark in frame["marks"]:
                size = 6.0 if mark["kind"].startswith("point") else 0.0
                assert mark["left"] >= -size - NEAR and mark["right"] <= frame["width"] + size + NEAR, mark
                assert mark["top"] >= -size - NEAR and mark["bottom"] <= frame["height"] + size + NEAR, mark
                curves += mark["kind"].startswith("curve")
        assert page.evaluate(BEYOND) == []
    assert curves > 15


def test_links_lead_to_sections_and_figures_say_what_they_show(opened: dict[str, "Page"]) -> None:
    for page in opened.values():
        there = page.evaluate("[...document.querySelectorAll('main section')].map(each => each.id)")
        assert page.evaluate("[...document.querySelectorAll('nav a')].map(each => each.hash.slice(1))") == there
        alts = page.evaluate("[...document.querySelectorAll('figure')].map(each => each.ariaLabel)")
        assert alts and all(len(alt) > 20 for alt in alts)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_mark_stands_out(browser: object, pages: dict[str, Path], scheme: str) -> None:
    with opening(browser, pages["sum_for_mean"]) as open_page:
        found = open_page(scheme=scheme).evaluate(CONTRASTS)
    assert {name.split()[-1] for name in found} >= {"bad", "torch", "tf", "numpy", "ideal"}
    assert {name: round(ratio, 2) for name, ratio in found.items() if ratio < 3} == {}

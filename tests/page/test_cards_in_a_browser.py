"""The card of a row, the view that the address keeps, and the table as it opens, in a real browser."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from samestep.common.cell import Cell
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.experiments.page.loaded import Loaded, make_group
from samestep.experiments.page.page import page as write_page
from tests.page.runs import trained

if TYPE_CHECKING:
    from playwright.sync_api import Page

Opened = Callable[..., "Page"]
SECTIONS = ("Losses", "Speed", "Where the time goes", "Memory", "On the wire", "What each row holds and sends")
BARS = """() => [...document.querySelectorAll('#table td[style]')].map(cell => {
    const style = getComputedStyle(cell);
    return [cell.cellIndex, Number(cell.dataset.v), parseFloat(style.backgroundSize), style.textAlign];
})"""
LINE = """([place, key]) => document.querySelector(`${place} .step-parts [data-row=${key}] .track`).innerHTML"""


def key_of(page: "Page", name: str) -> str:
    row = page.locator("#table tbody tr", has=page.get_by_role("rowheader", name=name, exact=True))
    return row.first.get_attribute("data-row") or ""


@pytest.mark.parametrize("place", ["#table", ".speed", "#provenance"])
def test_a_name_leads_to_the_card_of_its_row(opened: Opened, loaded: Loaded, place: str) -> None:
    page = opened()
    name = "torch:fsdp"
    assert page.locator("#card").is_hidden()
    page.locator(f"{place} a", has_text=name).first.click()
    card = page.locator("#card")
    assert card.locator("h2").inner_text() == name
    text = card.inner_text()
    result = next(entry.result for entry in loaded.entries if entry.name == name)
    assert result is not None and result.command in text and "same step" in text
    assert [each for each in SECTIONS if each not in card.locator("h3").all_inner_texts()] == []
    assert card.locator("svg.drawing").count() == 1
    key = key_of(page, name)
    assert page.evaluate(LINE, ["#card", key]) == page.evaluate(LINE, ["main", key])
    others = f"[...document.querySelectorAll('#card [data-row]')].filter(each => each.dataset.row !== '{key}').length"
    assert page.evaluate(others) == 0
    assert page.evaluate("decodeURIComponent(location.hash)") == f"#row={name}"
    page.keyboard.press("Escape")
    assert card.is_hidden() and page.evaluate("location.hash") == ""


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.slow)])
def test_a_card_is_read_by_everybody(opened: Opened, scheme: str) -> None:
    page = opened(390, scheme)
    page.locator("#table tbody a", has_text="torch:c10d").first.click()
    assert "every gradient is 2.000 x the oracle's" in page.locator("#card .callout").inner_text()
    assert page.evaluate("(card => card.scrollWidth <= card.clientWidth)(document.getElementById('card'))")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, context="#card", options={"resultTypes": ["violations"]}).response
    assert found["passes"]
    assert [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in found["violations"]] == []


def test_the_address_keeps_the_view(opened: Opened) -> None:
    page = opened()
    assert page.evaluate("location.hash") == ""
    page.locator("#table thead button", has_text="sent a step").click()
    page.locator("#filter").fill("torch: same")
    page.locator("#table tbody a:visible").first.click()
    address = page.evaluate("location.href")
    seen = "[...document.querySelectorAll('#table tbody tr:not([hidden])')].map(each => each.dataset.row)"
    rows, name = page.evaluate(seen), page.locator("#card h2").inner_text()
    page.goto("about:blank")
    page.goto(address)
    assert page.evaluate(seen) == rows and page.locator("#card h2").inner_text() == name
    assert page.locator("#table [aria-sort=ascending]").inner_text().startswith("sent a step")
    assert page.locator("#filter").input_value() == "torch: same"
    page.evaluate("location.hash = '#speed'")
    assert page.evaluate(seen) == rows, "a link to a section changes no view"


def test_rows_of_one_name_have_each_their_own_address(opened: Opened) -> None:
    page = opened()
    names = page.locator("#table tbody a", has_text="numpy:oracle")
    addresses = set()
    for number in range(names.count()):
        names.nth(number).click()
        addresses.add(page.evaluate("location.hash"))
        page.keyboard.press("Escape")
    assert len(addresses) == names.count() == 2


def test_the_fastest_row_is_first_and_the_first_click_puts_the_best_first(opened: Opened) -> None:
    page = opened()
    head = page.locator("#table thead th", has_text="examples/s")
    speeds = page.evaluate(
        f"[...document.querySelectorAll('#table tr > :nth-child({place(head)})')].slice(1).map(each => each.dataset.v)"
    )
    there = [float(each) for each in speeds if each is not None]
    assert head.get_attribute("aria-sort") == "descending"
    assert there == sorted(there, reverse=True) and speeds[len(there) :] == [None, None]
    page.locator("#table thead button", has_text="sent a step").click()
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"


def place(head: "object") -> int:
    return head.evaluate("each => each.cellIndex + 1")  # type: ignore[attr-defined]


def test_numbers_are_on_the_right_and_their_bars_to_scale(opened: Opened) -> None:
    page = opened()
    found = page.evaluate(BARS)
    assert len({column for column, *_ in found}) >= 4
    for column in {column for column, *_ in found}:
        most = max(value for each, value, *_ in found if each == column)
        for each, value, width, align in found:
            if each == column:
                assert width == pytest.approx(100 * value / most, abs=0.01) and align == "right"
    assert page.evaluate("getComputedStyle(document.querySelector('#table tbody td')).textAlign") != "right"


def test_what_all_rows_share_is_said_once(opened: Opened, tmp_path: Path) -> None:
    rows = tuple(Row.of(Cell.parse(cell), trained(cell, 10.0)) for cell in ("torch:ddp", "torch:fsdp", "tf:mirrored"))
    path = tmp_path / "same.html"
    path.write_text(write_page(Loaded((make_group("some", Comparison(rows), {}, 0),))))
    page = opened(path=path)
    titles = page.locator("#table thead th").all_inner_texts()
    assert titles and not {"devices", "dtype", "workload"} & {each.split()[0] for each in titles}
    assert "Every row: devices 2, dtype float32" in page.locator("#verdict").inner_text()

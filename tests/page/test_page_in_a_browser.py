"""The page in a real browser: it opens, can be read, sorted, filtered and reached by keyboard, and its numbers are true."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from samestep.common.cell import Cell
from samestep.common.judging.parity import LOSS_BOUND
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.experiments.page.curves import FRAME
from samestep.experiments.page.loaded import Loaded, make_group
from samestep.experiments.page.memory import CLASSES, UNKNOWN, held
from samestep.experiments.page.page import SECTIONS
from samestep.experiments.page.page import page as write_page
from samestep.experiments.page.wire import least_bytes
from tests.page.runs import trained

if TYPE_CHECKING:
    from playwright.sync_api import Page

Opened = Callable[..., "Page"]
WIDTHS = (390, 1440)
SCHEMES = ("light", "dark")
UNFOLD = "document.querySelectorAll('details').forEach(each => each.open = true)"
VALUE = "line => column ? line.cells[column].dataset.v ?? null : line.cells[0].textContent"
COLUMN = f"column => [...document.querySelectorAll('#table tbody tr')].map({VALUE})"


def column(page: "Page", title: str) -> int:
    heads = page.locator("#table thead th").all_inner_texts()
    return next(number for number, head in enumerate(heads) if head.startswith(title))


# --- it opens ---------------------------------------------------------------------------------------------------------


def test_every_section_is_there_and_its_link_leads_to_it(shown: "Page") -> None:
    there = shown.evaluate("[...document.querySelectorAll('main section')].map(each => each.id)")
    assert there == [name for name, *_ in SECTIONS]
    assert shown.evaluate("[...document.querySelectorAll('nav a')].map(each => each.hash.slice(1))") == there


def test_figures_have_marks_and_say_what_they_show(shown: "Page") -> None:
    marks = "each.querySelectorAll('[data-row], .curve').length"
    found = shown.evaluate(f"[...document.querySelectorAll('figure')].map(each => [each.ariaLabel, {marks}])")
    assert len(found) >= 10
    assert all(len(alt) > 30 and marks for alt, marks in found)
    assert shown.evaluate(
        "[...document.querySelectorAll('svg:not(.common)')].every(each => each.querySelector('title').textContent)"
    )
    for kind in ("dot", "interval", "spread", "bar", "expected", "least", "curve", "point", "whisker", "unknown"):
        assert shown.locator(f".{kind}:not(.swatch)").count() > 1, kind


def test_what_is_emulated_is_marked_wherever_it_stands(shown: "Page") -> None:
    places = "th, .name, .point.end, [data-pick], summary, #provenance tbody th, .curve title, svg text"
    found = shown.evaluate("places => [...document.querySelectorAll(places)].map(each => each.textContent)", places)
    named = [text for text in found if text.startswith("torch:dp") and not text.startswith("torch:dp_")]
    assert len(named) >= 20
    assert [text for text in named if "(emulated)" not in text] == []
    assert "torch:dp is emulated: threads" in shown.locator("#verdict").inner_text()


def test_what_a_log_holds_is_text(shown: "Page") -> None:
    assert "<script>alert('log')</script> <b>bold</b> & " in shown.locator("#verdict").inner_text()
    assert shown.locator("main script, #verdict .notes b").count() == 0


# --- sorting, filtering, keys -----------------------------------------------------------------------------------------


def test_numbers_are_sorted_by_size_and_what_is_missing_comes_last(opened: Opened) -> None:
    page = opened()
    number = column(page, "examples/s")
    head = page.locator("#table thead th").nth(number)
    for direction, sign in (("ascending", 1), ("descending", -1)):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        values = page.evaluate(COLUMN, number)
        there = [float(value) for value in values if value is not None]
        assert there == sorted(there, key=lambda value: sign * value)
        assert values[len(there) :] == [None, None]
    assert page.locator("#table [aria-sort=ascending], #table [aria-sort=descending]").count() == 1


def test_text_is_sorted_by_letter(opened: Opened) -> None:
    page = opened()
    page.locator("#table thead button").first.click()
    names = [re.split("[ +]", name)[0] for name in page.evaluate(COLUMN, 0)]
    assert names == sorted(names) and len(set(names)) > 5


def test_the_filter_leaves_rows_with_all_words_and_dims_the_others_marks(opened: Opened) -> None:
    page = opened()
    page.locator("#filter").fill("TF: same")
    shown = page.locator("#table tbody tr:visible th").all_text_contents()
    assert sorted(shown) == ["tf:mirrored", *(f"tf:mirrored+devices={devices}" for devices in (1, 2, 4))]
    assert page.locator("#found").inner_text() == "4 of 19 rows"
    seen = "[each.textContent.trim(), each.classList.contains('dimmed')]"
    marks = page.evaluate(f"[...document.querySelectorAll('.speed [data-row]')].map(each => {seen})")
    assert all(dimmed != text.startswith("tf:mirrored") for text, dimmed in marks)
    page.locator("#filter").fill("")
    assert page.locator(".dimmed").count() == 0
    assert page.locator("#found").inner_text() == "19 rows"


def test_everything_can_be_reached_and_used_by_keyboard(opened: Opened) -> None:
    page = opened()
    page.locator("#filter").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # past the table, which scrolls
    assert page.evaluate("document.activeElement.textContent") == "row"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("Enter")
    assert page.locator("#table th").first.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Space")
    assert page.locator("#table th").first.get_attribute("aria-sort") == "descending"
    button = page.locator("[data-pick]").first
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    figure = page.locator("figure.picked")
    assert (
        figure.locator(".curve.on").count()
        == figure.locator(f".curve[data-row={button.get_attribute('data-pick')}]").count()
    )
    page.keyboard.press("Enter")
    assert page.locator("figure.picked").count() == 0
    summary = page.locator("#verdict details summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("#verdict details[open]").count() == 1


def test_a_thousand_rows_are_sorted_at_once(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar is 200 ms, which `benchmarks/cost/report.py` prints; a loaded machine gets five times as much."""
    rows = [
        Row.of(Cell.parse(f"torch:ddp+seed={seed}"), trained("torch:ddp", 1000.0 + seed * 7 % 1000))
        for seed in range(1000)
    ]
    monkeypatch.setattr("samestep.experiments.page.page.SECTIONS", SECTIONS[:2])
    path = tmp_path / "many.html"
    path.write_text(write_page(Loaded((make_group("many", Comparison(tuple(rows)), {}, 0),))))
    page = opened(path=path)
    number = column(page, "examples/s")
    taken = page.evaluate(
        """number => {
            const start = performance.now();
            document.querySelectorAll('#table thead button')[number].click();
            document.getElementById('table').getBoundingClientRect();
            return performance.now() - start;
        }""",
        number,
    )
    values = [float(value) for value in page.evaluate(COLUMN, number)]
    assert values == sorted(values) and len(values) == 1000
    assert taken < 5 * 200


def test_a_long_page_lays_out_what_is_near_and_prints_all_of_it(
    opened: Opened, loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("samestep.experiments.page.rendering.LONG", 0)
    path = tmp_path / "long.html"
    path.write_text(write_page(loaded))
    page = opened(path=path)
    style = "name => getComputedStyle(document.getElementById(name)).contentVisibility"
    assert [page.evaluate(style, name) for name in ("rows", "provenance")] == ["visible", "auto"]
    for link in page.locator("nav a").all()[::-1]:
        link.evaluate("each => each.click()")
        page.wait_for_timeout(100)  # what is near is laid out, which must not move it away
        name = link.get_attribute("href").removeprefix("#")
        top = page.evaluate(f"document.getElementById('{name}').getBoundingClientRect().top")
        assert 0 <= top < 900, name
    page.evaluate("document.getElementById('provenance').scrollIntoView()")
    page.wait_for_function("document.getElementById('provenance').innerText.includes('command that repeats it')")
    page.emulate_media(media="print")
    assert page.evaluate(style, "provenance") == "visible"


@pytest.mark.parametrize("scheme", [SCHEMES[0], pytest.param(SCHEMES[1], marks=pytest.mark.slow)])
def test_what_is_written_once_looks_as_if_it_were_written_out(
    opened: Opened, loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Parts that drawings share, and curves that lie on each other: no pixel differs."""
    looks = []
    for name in ("shared", "whole"):
        if name == "whole":
            monkeypatch.setattr("samestep.experiments.page.curves.Panel.shared", {})
            monkeypatch.setattr(
                "samestep.experiments.page.observed._share_parts",
                lambda drawings: (list(drawings), ElementTree.Element("svg", {"class": "drawing common"})),
            )
        path = tmp_path / f"{name}.html"
        path.write_text(write_page(loaded))
        assert ("<use " in path.read_text()) == (name == "shared")
        page = opened(scheme=scheme, path=path)
        page.evaluate(UNFOLD)
        places = ("#anatomy figure", "#losses figure")
        looks.append([page.locator(place).first.screenshot() for place in places])
    assert looks[0] == looks[1]


# --- it can be read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        pytest.param(width, scheme, marks=[] if place in ((0, 1), (1, 0)) else [pytest.mark.slow])
        for place in itertools.product(range(2), repeat=2)
        for width, scheme in [(WIDTHS[place[0]], SCHEMES[place[1]])]
    ],
)
def test_nothing_overflows(opened: Opened, width: int, scheme: str) -> None:
    """Each width and each scheme; `make test-slow` has their product."""
    page = opened(width, scheme)
    page.evaluate(UNFOLD)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    beyond = """[...document.querySelectorAll('body *')]
        .filter(each => !each.closest('.scroll, pre') && each.getClientRects().length)
        .filter(each => { const box = each.getBoundingClientRect(); return box.right > innerWidth + 0.5 || box.left < -0.5; })
        .map(each => `${each.tagName} ${each.className} ${each.textContent.slice(0, 40)}`)"""
    assert page.evaluate(beyond) == []
    cut = """[...document.querySelectorAll('h1, h2, h3, p, li, .who, .said, button')]
        .filter(each => !each.closest('.scroll') && each.scrollWidth > each.clientWidth + 1 && each.clientWidth)
        .map(each => each.textContent.slice(0, 40))"""
    assert page.evaluate(cut) == []


def test_a_long_name_in_an_answer_is_broken(opened: Opened) -> None:
    page = opened(WIDTHS[0], SCHEMES[0])
    page.evaluate("document.querySelector('dl.answers b').textContent = 'torch:ddp+accumulation_steps=2'.repeat(9)")
    assert page.evaluate("document.documentElement.scrollWidth") == WIDTHS[0]


def serious(page: "Page", **options: object) -> list[tuple[str, list[str]]]:
    """What axe-core holds to be serious on the whole page, with the first elements that it is about."""
    page.evaluate(UNFOLD)
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"], **options}).response
    assert found["passes"]
    bad = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    return [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in bad]


def test_axe_finds_nothing_serious(opened: Opened) -> None:
    assert serious(opened()) == []


def test_dark_colours_have_contrast(opened: Opened) -> None:
    page = opened(scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(each => each < 60)")
    assert serious(page, runOnly=["color-contrast"]) == []


# --- its numbers are those of result.json -----------------------------------------------------------------------------

MARKS = """name => [...document.querySelectorAll(`.${name} .lines > [data-row]`)].map(line => ({
    row: line.dataset.row,
    track: line.querySelector('.track').getBoundingClientRect().width,
    marks: [...line.querySelectorAll('.track i')].map(mark => ({
        kind: mark.className, ...mark.dataset,
        left: mark.getBoundingClientRect().left - line.querySelector('.track').getBoundingClientRect().left,
        width: mark.getBoundingClientRect().width,
    })),
}))"""


def test_speeds_and_intervals(shown: "Page", loaded: Loaded) -> None:
    marks = {line["row"]: line["marks"] for line in shown.evaluate(MARKS, "speed")}
    found = {each.key: each.measured.speed.prediction for each in loaded.entries if each.measured}
    timed = {key: predicted for key, predicted in found.items() if predicted}
    assert marks.keys() == timed.keys()
    for entry in loaded.entries:
        if not (entry.result and entry.result.examples_per_second):
            continue
        *ends, dot = marks[entry.key]
        predicted, windows = timed[entry.key], entry.result.examples_per_second
        low, high = (
            (predicted.low, predicted.high) if predicted.low else (windows.slowest_window, windows.fastest_window)
        )
        assert float(dot["value"]) == predicted.median
        assert [(float(end["low"]), float(end["high"])) for end in ends] == [(low, high)]
        assert ends[0]["kind"].startswith("interval" if len(entry.row.results) > 1 else "spread")
        middle = dot["left"] + dot["width"] / 2
        assert ends[0]["left"] - 1 <= middle <= ends[0]["left"] + ends[0]["width"] + 1


def test_memory_by_class(shown: "Page", loaded: Loaded) -> None:
    assert any(
        each.measured != each.predicted for entry in loaded.entries if entry.result for each in held(entry.result)
    )
    lines = shown.evaluate(MARKS, "memory")
    wanted = [(entry.key, each) for entry in loaded.entries if entry.result for each in held(entry.result)]
    assert [line["row"] for line in lines] == [key for key, _ in wanted]
    scales = set()
    for line, (_, device) in zip(lines, wanted, strict=True):
        for kind, parts in (("measured", device.measured), ("predicted", device.predicted)):
            drawn = {each["kind"].split()[-1]: each for each in line["marks"] if kind in each["kind"]}
            assert (drawn.pop(UNKNOWN, None) is not None) == (parts is not None and None in parts)
            assert {name: int(each["value"]) for name, each in drawn.items()} == {
                of.kind: part for of, part in zip(CLASSES, parts or (), strict=False) if part
            }
            scales |= {round(each["width"] / int(each["value"]) * 1e5) for each in drawn.values()}
    assert len(scales) <= 2  # pixels for each byte: all bars of a figure are to one scale


def test_bytes_on_the_wire(shown: "Page", loaded: Loaded) -> None:
    marks = {line["row"]: line["marks"] for line in shown.evaluate(MARKS, "wire")}
    for entry in loaded.entries:
        if not entry.result:
            continue
        sent = sum(row.sent_bytes_per_step for row in entry.result.processes)
        wanted = [sent, entry.result.predicted.sent_bytes_per_step, least_bytes(entry.result)]
        bar, *others = marks[entry.key]
        assert [float(each["value"]) for each in (bar, *others)] == [each for each in wanted if each is not None]
        for each in others:  # a mark is where a bar of as many bytes would end
            middle = each["left"] + each["width"] / 2
            assert middle == pytest.approx(float(each["value"]) * bar["width"] / sent, abs=2) or not sent


CURVES = """name => [...document.querySelectorAll('.losses')].map(figure => [...figure.querySelectorAll('.panel')].map(panel => {
    const frame = panel.querySelector('.frame');
    const path = curve => curve.href ? document.querySelector(curve.href.baseVal) : curve;
    return {
        x: frame.dataset.x.split(' ').map(Number), y: frame.dataset.y.split(' ').map(Number),
        curves: [...panel.querySelectorAll('.curve')].map(curve => [curve.dataset.row, path(curve).getAttribute('d')]),
    };
}))"""


def points(path: str, across: list[float], up: list[float], is_log: bool) -> list[tuple[float, float]]:
    """The values that a drawn curve goes through: it says where it begins, then the way to each next point."""
    numbers = [int(number) for number in re.findall(r"-?\d+", path)]
    found = []
    for x, y in zip(itertools.accumulate(numbers[::2]), itertools.accumulate(numbers[1::2]), strict=True):
        share = 1 - y / FRAME
        value = up[0] * (up[1] / up[0]) ** share if is_log else up[0] + share * (up[1] - up[0])
        found.append((across[0] + x / FRAME * (across[1] - across[0]), value))
    return found


def test_losses_and_deviations_of_every_step(shown: "Page", loaded: Loaded) -> None:
    """Read off the curves as they are drawn: coordinates are whole, so a value is off by half of one at most."""
    entries = {entry.key: entry.result for entry in loaded.entries if entry.result}
    seen = 0
    for losses, deviations in shown.evaluate(CURVES):
        near = 0.51 / FRAME * (losses["y"][1] - losses["y"][0])
        for key, path in losses["curves"]:
            drawn, result = points(path, losses["x"], losses["y"], False), entries[key]
            assert [round(step) for step, _ in drawn] == list(range(len(result.losses)))
            assert [value for _, value in drawn] == pytest.approx(result.losses, abs=near)
            seen += 1
        factor = (deviations["y"][1] / deviations["y"][0]) ** (0.51 / FRAME) - 1
        for key, path in deviations["curves"]:
            drawn = points(path, deviations["x"], deviations["y"], True)
            wanted = [max(each, deviations["y"][0]) for each in entries[key].parity.deviations]
            assert [value for _, value in drawn] == pytest.approx(wanted, rel=factor)
            assert max(value for _, value in drawn) == pytest.approx(entries[key].parity.max_relative_loss, rel=factor)
            seen += 1
    assert seen == len(entries) + sum(bool(result.parity.deviations) for result in entries.values())


def test_the_matrix_has_the_largest_deviation_of_each_strategy(shown: "Page", loaded: Loaded) -> None:
    found = shown.evaluate(
        "[...document.querySelectorAll('.matrix td')].map(each => [each.dataset.row, each.dataset.value, each.textContent])"
    )
    results = {entry.key: entry.result for entry in loaded.entries if entry.result}
    for key, value, text in found:
        same = [
            r for r in results.values() if (r.framework, r.strategy) == (results[key].framework, results[key].strategy)
        ]
        assert float(value) == max(r.parity.max_relative_loss for r in same)
        assert text.startswith("✓") == (float(value) <= LOSS_BOUND["float32"])
    assert sum(text.startswith("✗") for *_, text in found) == 1


def test_speed_ups(shown: "Page", loaded: Loaded) -> None:
    value = "[each.dataset.cell, Number(each.dataset.value)]"
    drawn = shown.evaluate(f"[...document.querySelectorAll('#scaling .point[data-value]')].map(each => {value})")
    found = [each for group in loaded.groups for each in group.comparison.scaling if each.points[-1].speedup]
    assert len(found) == 2
    assert drawn == [
        [str(each.cell), point.speedup.ratio if point.speedup else 1.0] for each in found for point in each.points
    ]


def test_every_command_is_there_whole(shown: "Page", loaded: Loaded) -> None:
    text = shown.locator("#provenance").inner_text()
    for entry in loaded.entries:
        numbers = ",".join(directory.name for directory in entry.directories)
        spelled = f"{{{numbers}}}" if "," in numbers else numbers
        assert f"{entry.directories[0].parent}/{spelled}" in text
        assert not entry.result or entry.result.command in text

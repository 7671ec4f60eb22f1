"""Every mark of the page in a real browser: where its number belongs, inside its frame, to be seen, and on paper as well."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
NEAR = 1.0
"""Pixels by which a mark may be off: a place is rounded to a thousandth of a percent, and a browser snaps to pixels."""
WIDTHS = (390, 1440)
PAPER = 718
"""The width of A4 in pixels, less margins of a centimetre."""

TRACKS = """() => [...document.querySelectorAll('.lines')].flatMap(plot => {
    const [low, high] = plot.dataset.x.split(' ').map(Number);
    return [...plot.querySelectorAll('.track')].map(track => {
        const frame = track.getBoundingClientRect();
        return {
            low, high, scale: plot.dataset.xScale, width: frame.width,
            marks: [...track.children].map(mark => {
                const box = mark.getBoundingClientRect();
                const ends = {left: box.left - frame.left, right: box.right - frame.left};
                return {kind: mark.className, data: {...mark.dataset}, ...ends};
            }),
        };
    });
})"""
FRAMES = """() => [...document.querySelectorAll('.frame')].map(frame => {
    const outer = frame.getBoundingClientRect();
    const [low, high] = frame.dataset.y.split(' ').map(Number);
    const place = mark => {
        const box = mark.getBoundingClientRect();
        return {
            kind: mark.getAttribute('class') ?? 'word', data: {...mark.dataset},
            left: box.left - outer.left, right: box.right - outer.left,
            top: box.top - outer.top, bottom: box.bottom - outer.top,
        };
    };
    return {
        low, high, scale: frame.dataset.yScale, width: outer.width, height: outer.height,
        marks: [...frame.querySelectorAll('.told > *, .curve, .level')].map(place),
    };
})"""
DRAWINGS = """() => [...document.querySelectorAll('svg.drawing')].map(drawing => {
    const {width, height} = drawing.viewBox.baseVal;
    const shapes = [...drawing.querySelectorAll('rect, path, circle, text, use')].filter(each => !each.closest('defs'));
    const boxes = shapes.map(each => [each.getBBox(), `${each.tagName} ${each.textContent}`]);
    const beyond = boxes.filter(([b]) => b.x < -1 || b.y < -1 || b.x + b.width > width + 1 || b.y + b.height > height + 1);
    return beyond.map(([, name]) => name);
})"""
CONTRASTS = """() => {
    const canvas = Object.assign(document.createElement('canvas'), {width: 1, height: 1});
    const context = canvas.getContext('2d', {willReadFrequently: true});
    const paper = getComputedStyle(document.body).backgroundColor;
    function seen(color, opacity) {
        context.globalAlpha = 1; context.fillStyle = paper; context.fillRect(0, 0, 1, 1);
        context.globalAlpha = opacity; context.fillStyle = color; context.fillRect(0, 0, 1, 1);
        const parts = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map(each => each / 255);
        const [r, g, b] = parts.map(each => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }
    const back = seen(paper, 1);
    const ratio = (color, opacity) => {
        const [high, low] = [seen(color, opacity), back].sort((a, b) => b - a);
        return (high + 0.05) / (low + 0.05);
    };
    const shapes = '.drawing rect, .drawing path, .drawing circle';
    const marks = document.querySelectorAll(`.track i, .swatch, .told i:not(.end), .curve, ${shapes}`);
    const found = {};
    for (const mark of marks) {
        const style = getComputedStyle(mark), opacity = Number(style.opacity), isShape = mark instanceof SVGElement;
        const colors = isShape
            ? [[style.fill, Number(style.fillOpacity)], [style.stroke, Number(style.strokeOpacity)]]
                .filter(([each]) => each !== 'none')
            : [[style.backgroundColor, 1], [style.borderLeftColor, parseFloat(style.borderLeftWidth) ? 1 : 0],
               [style.borderTopColor, parseFloat(style.borderTopWidth) ? 1 : 0],
               ...(style.backgroundImage.match(/rgba?\\([^)]*\\)/g) ?? []).map(each => [each, 1])];
        const name = `${mark.tagName} ${mark.getAttribute('class')}`;
        found[name] = Math.min(found[name] ?? 99, Math.max(...colors.map(([color, own]) => ratio(color, own * opacity))));
    }
    return found;
}"""
DECORATION = ("panel", "line", "whole")
"""Shapes of drawings that carry no number: backgrounds, rules, and the dashed outline of a bar that is filled."""


def place(value: float, axis: dict[str, Any], length: float) -> float:
    """Where a value belongs, in pixels."""
    low, high = axis["low"], axis["high"]
    if axis["scale"] == "log":
        return length * (math.log(max(value, low)) - math.log(low)) / (math.log(high) - math.log(low))
    return length * (value - low) / (high - low)


@pytest.fixture(scope="module", params=WIDTHS)
def sized(request: pytest.FixtureRequest, browser: object, report: Path) -> "Page":
    from tests.page.conftest import opening

    with opening(browser, report) as open_page:
        page = open_page(request.param)
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        yield page


def test_marks_beside_names_are_where_their_numbers_belong(sized: "Page") -> None:
    counted: dict[str, int] = {}
    for track in sized.evaluate(TRACKS):
        stacked = {"measured": 0.0, "predicted": 0.0}
        for mark in track["marks"]:
            (kind, *words), data = mark["kind"].split(), mark["data"]
            if kind == "bar":
                (start,) = {stacked[level] for level in words[:-1]}  # both levels end where one element stands for both
                end = start + float(data.get("value", 0))
                stacked |= dict.fromkeys(words[:-1], end)
                ends = (start, end) if "value" in data else ()
            else:
                ends = [float(data[end]) for end in (("value", "value") if "value" in data else ("low", "high"))]
            counted[kind] = counted.get(kind, 0) + 1
            for end, edge in zip(ends, ("left", "right"), strict=False):
                at = (mark["left"] + mark["right"]) / 2 if "value" in data and kind != "bar" else mark[edge]
                assert at == pytest.approx(place(end, track, track["width"]), abs=NEAR), mark
    assert {"bar", "dot", "interval", "spread", "expected", "least"} <= counted.keys()
    assert min(counted.values()) > 1


def test_marks_on_panels_are_as_high_as_their_numbers(sized: "Page") -> None:
    seen = {"point": 0, "whisker": 0}
    for frame in sized.evaluate(FRAMES):
        for mark in frame["marks"]:
            data, height = mark["data"], frame["height"]
            if "low" in data:
                ends = [height - place(float(data[end]), frame, height) for end in ("high", "low")]
                assert [mark["top"], mark["bottom"]] == pytest.approx(ends, abs=NEAR), mark
                seen["whisker"] += 1
            elif "value" in data:
                wanted = height - place(float(data["value"]), frame, height)
                assert (mark["top"] + mark["bottom"]) / 2 == pytest.approx(wanted, abs=NEAR), mark
                seen["point"] += 1
    assert min(seen.values()) >= 4


def test_no_two_intervals_hide_each_other(sized: "Page") -> None:
    for frame in sized.evaluate(FRAMES):
        lefts = sorted(mark["left"] for mark in frame["marks"] if mark["kind"].startswith("whisker"))
        assert all(after - before >= 3 for before, after in itertools.pairwise(lefts))


def test_nothing_that_is_drawn_leaves_its_frame(sized: "Page") -> None:
    for track in sized.evaluate(TRACKS):
        for mark in track["marks"]:
            half = (mark["right"] - mark["left"]) / 2 if "value" in mark["data"] else 0.0
            assert mark["left"] >= -half - NEAR and mark["right"] <= track["width"] + half + NEAR, mark
    for frame in sized.evaluate(FRAMES):
        for mark in frame["marks"]:
            size = (
                6.0 if mark["kind"].startswith(("point", "whisker")) else 0.0
            )  # a mark has a middle inside and a body
            assert mark["left"] >= -size - NEAR and mark["right"] <= frame["width"] + size + NEAR, mark
            assert mark["top"] >= -size - NEAR and mark["bottom"] <= frame["height"] + size + NEAR, mark
    drawings = sized.evaluate(DRAWINGS)
    assert len(drawings) >= 6
    assert [each for each in drawings if each] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_mark_stands_out_from_the_page(opened: Opened, scheme: str) -> None:
    """WCAG 2.2, 1.4.11: what a figure says has a contrast of at least 3 to 1."""
    page = opened(scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    found = page.evaluate(CONTRASTS)
    marks = {name: ratio for name, ratio in found.items() if name.split()[-1] not in DECORATION}
    assert len(marks) >= 30
    assert {name: round(ratio, 2) for name, ratio in marks.items() if ratio < 3} == {}


def test_a_printed_page_has_its_marks_its_columns_and_what_was_closed(opened: Opened) -> None:
    page = opened(PAPER)
    was_open = page.locator("details[open]").count()
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    adjusted = """[...document.querySelectorAll('.track i, .swatch, .told i, .matrix td, .bar')]
        .filter(each => getComputedStyle(each).printColorAdjust !== 'exact').length"""
    assert page.evaluate(adjusted) == 0
    beyond = """[...document.querySelectorAll('body *')]
        .filter(each => each.getClientRects().length && !each.closest('svg'))
        .filter(each => each.getBoundingClientRect().right > innerWidth + 1)
        .map(each => `${each.tagName} ${each.className} ${each.textContent.slice(0, 40)}`)"""
    assert page.evaluate(beyond) == []
    wide = "[...document.querySelectorAll('svg')].filter(each => each.getBoundingClientRect().right > innerWidth + 1).length"
    assert page.evaluate(wide) == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == was_open


def test_what_is_too_uncertain_has_no_bar_and_the_words_of_the_terminal(opened: Opened, tmp_path: Path) -> None:
    rates = (100.0, 9000.0)
    rows = (Row.of(Cell.parse("torch:ddp"), *(trained("torch:ddp", rate) for rate in rates)),)
    comparison = Comparison(rows)
    path = tmp_path / "uncertain.html"
    path.write_text(write_page(Loaded((make_group("some", comparison, {}, 0),))))
    page = opened(path=path)
    assert page.locator(".speed .track .interval, .speed .track .spread").count() == 0
    assert page.locator(".speed .track .dot").count() == 1
    assert "[too few rounds]" in page.locator(".speed .said").inner_text()
    assert "[too few rounds]" in comparison.table(wide=True)


def test_a_row_whose_activations_were_not_measured_does_not_look_leaner(opened: Opened, tmp_path: Path) -> None:
    whole = trained("torch:ddp", 10.0)
    part = dataclasses.replace(
        whole, processes=[dataclasses.replace(row, activations_bytes=None) for row in whole.processes]
    )
    path = tmp_path / "part.html"
    rows = (Row.of(Cell.parse("torch:ddp"), whole), Row.of(Cell.parse("torch:fsdp"), part))
    path.write_text(write_page(Loaded((make_group("some", Comparison(rows), {}, 0),))))
    page = opened(path=path)
    whole_text, part_text = (page.locator(f".memory [data-row={key}] .said").all_inner_texts() for key in ("r0", "r1"))
    assert whole_text and not any(text.startswith("at least") for text in whole_text)
    assert part_text and all(text.startswith("at least") and "activations not measured" in text for text in part_text)
    assert page.locator(".memory [data-row=r1] .bar.measured.unknown").count() == len(part_text)

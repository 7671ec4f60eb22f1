"""Timelines in a real browser: on one axis, to scale at every zoom, and on their way to Perfetto."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from samestep.experiments.page.loading import load
from samestep.experiments.page.page import page as write_page
from tests.page import runs

if TYPE_CHECKING:
    from playwright.sync_api import Page

Opened = Callable[..., "Page"]
TIMES = 4
"""How many times as long the second step is."""
LONGEST = 1500 * TIMES
BARS = """() => [...document.querySelectorAll('#timeline main, #timeline svg')].map(drawing =>
    [...drawing.querySelectorAll('rect[data-us]')].map(bar => ({
        axis: drawing.dataset.axis.split(' ').map(Number), times: bar.dataset.us.split(' ').map(Number),
        kind: bar.getAttribute('class'), x: bar.x.baseVal.value, width: bar.width.baseVal.value,
        isSeen: bar.style.display !== 'none', said: bar.querySelector('title').textContent,
    })))"""
TICKS = """[...document.querySelectorAll('#timeline svg')]
    .map(each => [...each.querySelectorAll('.ticks text')].map(text => text.textContent))"""
PERFETTO = """() => {
    window.sent = [];
    const frame = document.body.appendChild(document.createElement('iframe'));
    const opened = frame.contentWindow;
    opened.postMessage = (data, origin) => {
        sent.push([data.perfetto ? new TextDecoder().decode(data.perfetto.buffer) : data, origin]);
        if (data === 'PING' && sent.length === 1)
            window.dispatchEvent(new MessageEvent('message', {data: 'PONG', source: opened}));
    };
    window.open = address => { window.asked = address; return opened; };
}"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page on two runs that were traced."""
    home = tmp_path_factory.mktemp("traced")
    for number, (cell, times) in enumerate((("torch:zero1", 1), ("torch:zero2", TIMES))):
        directory = runs.single(home / str(number), runs.trained(cell, 500.0))
        runs.trace(directory, times)
    path = home / "report.html"
    path.write_text(write_page(load([home])))
    return path


def holds(bars: list[dict[str, Any]], start: float, end: float) -> None:
    """Every bar is where its time is between two moments, as far as it is between them."""
    for bar in bars:
        left, right, length = bar["axis"]
        assert length == LONGEST
        begins, ends = (
            left + (t - start) / (end - start) * (right - left) for t in (bar["times"][0], sum(bar["times"]))
        )
        assert bar["isSeen"] == (ends > left and begins < right), bar
        if bar["isSeen"]:
            seen = max(begins, left), min(ends, right)
            assert bar["x"] == pytest.approx(seen[0], abs=0.02)
            assert bar["width"] == pytest.approx(max(seen[1] - seen[0], 0.4), abs=0.02)


def test_all_rows_have_one_axis_and_say_their_totals(opened: Opened, traced: Path) -> None:
    page = opened(path=traced)
    one, other = page.evaluate(BARS)
    holds([*one, *other], 0, LONGEST)
    widths = [{bar["kind"]: bar["width"] for bar in each} for each in (one, other)]
    assert widths[1]["backward"] == pytest.approx(TIMES * widths[0]["backward"], rel=1e-3)
    assert page.locator("#timeline details[open] svg").count() == 2
    text = page.locator("#timeline svg").last.text_content() or ""
    assert "data 0.02 ms, compute 5.2 ms, communicate 3.6 ms, idle 0 ms" in text
    assert page.evaluate(TICKS)[0] == page.evaluate(TICKS)[1]


def test_bars_are_to_scale_at_every_zoom(opened: Opened, traced: Path) -> None:
    page = opened(path=traced)
    whole = page.evaluate(BARS)
    for button, bounds in (
        ("Zoom in", (0.25, 0.75)), ("Zoom in", (0.375, 0.625)), ("Earlier", (0.25, 0.5)), ("Later", (0.375, 0.625)),
        ("Zoom out", (0.25, 0.75)), ("Whole axis", (0, 1)), ("Later", (0, 1)), ("Zoom out", (0, 1)),
    ):  # fmt: skip
        page.get_by_role("button", name=button).click()
        for bars in page.evaluate(BARS):
            holds(bars, *(bound * LONGEST for bound in bounds))
        ticks = [1000 * float(each) for each in page.evaluate(TICKS)[0][:-1]]
        assert len(ticks) >= 3 and all(bounds[0] * LONGEST <= each <= bounds[1] * LONGEST for each in ticks)
    for before, after in zip(whole, page.evaluate(BARS), strict=True):
        for one, other in zip(before, after, strict=True):
            assert other["x"] == pytest.approx(one["x"], abs=0.02)


def test_a_bar_says_what_it_is_and_comes_near_when_it_is_clicked(opened: Opened, traced: Path) -> None:
    page = opened(path=traced)
    bar = page.locator("#timeline rect.forward[data-us]").last
    bar.hover()
    assert page.locator("#timeline output").inner_text() == "rank-0: forward, 1.6 ms, from 0.0200 ms"
    bar.click()
    _, bars = page.evaluate(BARS)
    (near,) = (each for each in bars if each["kind"] == "forward")
    assert near["width"] == pytest.approx((near["axis"][1] - near["axis"][0]) / 2, rel=1e-3)


def test_what_is_drawn_goes_to_perfetto_once_it_answers(opened: Opened, traced: Path) -> None:
    page = opened(path=traced)
    page.evaluate(PERFETTO)
    page.get_by_role("button", name="Open in Perfetto").last.click()
    page.wait_for_function("window.sent.length > 1")
    (ping, _), (content, origin) = page.evaluate("window.sent")
    assert ping == "PING" and origin == page.evaluate("window.asked") == "https://ui.perfetto.dev"
    events = [each for each in json.loads(content)["traceEvents"] if each["ph"] == "X"]
    drawn = page.evaluate(BARS)[1]
    assert sorted((each["ts"], each["dur"]) for each in events) == sorted(tuple(each["times"]) for each in drawn)
    assert {each["name"].split(",")[0]: each["tid"] for each in events}["all_reduce"] == 2

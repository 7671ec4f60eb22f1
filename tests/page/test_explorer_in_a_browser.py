"""The page of `samestep explore` in a real browser: what is drawn is what is embedded, and it can be used by anyone."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from samestep.experiments.exploring.grid import key_of
from tests.explored import embedded, write
from tests.page.conftest import Opened, opening

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SHOWN = "torch:fsdp", "tf:parameter_server"
DRAWN = """side => [...document.querySelectorAll(`[data-side=${side}] .device`)].map(device => ({
    name: device.dataset.device, batch: device.dataset.batch, top: device.getBoundingClientRect().top,
    bars: [...device.querySelectorAll('rect[data-bytes]')]
        .map(bar => [bar.getBoundingClientRect().width, Number(bar.dataset.bytes)]),
}))"""
SHARDS = """side => [...document.querySelectorAll(`[data-side=${side}] .shard`)].map(shard => {
    const box = (shard.querySelector('rect') || shard.querySelector('circle')).getBoundingClientRect();
    return {...shard.dataset, said: shard.querySelector('text')?.textContent.replace('\u00a0', ' '), y: box.y + box.height / 2};
})"""


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("explored"), *SHOWN)


@pytest.fixture(scope="module")
def data(explorer: Path) -> Mapping[str, object]:
    return embedded(explorer)


@pytest.fixture
def opened(browser: "Browser", explorer: Path) -> Iterator[Opened]:
    with opening(browser, explorer) as open_page:
        yield open_page


def put(page: "Page", control: str, value: int) -> None:
    """Sets a slider or a list of rows."""
    page.locator(f"#{control}").evaluate(
        "(each, value) => { each.value = value; each.dispatchEvent(new Event('input', {bubbles: true})); }", str(value)
    )


def step_of(data: Mapping[str, object], row: int, devices: int) -> Mapping[str, Sequence[object]] | str:
    key = key_of(data["devices"][devices], data["widths"][data["start"]["width"]])
    return data["rows"][row]["steps"][key]


def test_the_devices_that_are_drawn_are_those_of_the_slider(opened: Opened, data: Mapping[str, object]) -> None:
    """One has as many boxes as the slider says, and those that only serve; a bar is as long as its bytes."""
    page, scales = opened(), {}
    for devices, count in enumerate(data["devices"]):
        put(page, "devices", devices)
        assert page.locator("#devices-said").inner_text() == str(count)
        for side, row in (("left", data["start"]["left"]), ("right", data["start"]["right"])):
            step, drawn = step_of(data, row, devices), page.evaluate(DRAWN, side)
            assert sum(bool(each["batch"]) for each in drawn) == count
            assert [each["name"] for each in drawn] == [device[0] for device in step["devices"]]
            assert [each["top"] for each in drawn] == sorted({each["top"] for each in drawn})
            for each, (_, _, held, _, kept) in zip(drawn, step["devices"], strict=True):
                assert [size for _, size in each["bars"]] == [*(size for _, size, _ in held), kept[0] or 0]
                scales.setdefault(devices, []).extend(width / size for width, size in each["bars"] if size > 10_000)
    for found in scales.values():
        assert max(found) < 1.02 * min(found)  # all bars of both sides are to one scale


def test_a_shard_carries_the_bytes_of_the_ledger_from_device_to_device(
    opened: Opened, data: Mapping[str, object]
) -> None:
    page, seen = opened(), {"left": [], "right": []}
    steps = {side: step_of(data, data["start"][side], data["start"]["devices"]) for side in seen}
    last = int(page.locator("#place").get_attribute("max"))
    for _ in range(last + 1):
        for side, step in steps.items():
            shards = page.evaluate(SHARDS, side)
            named = page.locator(f"[data-side={side}] .moves [aria-current]").count()
            assert named == bool(shards)
            if shards:
                seen[side].append(
                    [{each["bytes"] for each in shards}, " ".join(f"{s['from']}-{s['to']}" for s in shards)]
                )
                assert {each["said"] for each in shards} - {None} == {step["moves"][len(seen[side]) - 1][5]}
                boxes = page.evaluate(DRAWN, side)
                for each in shards:  # at rest near the device that sends it
                    distance = [abs(each["y"] - boxes[int(each[end])]["top"]) for end in ("from", "to")]
                    assert distance[0] < distance[1] + 92
        page.locator("#next").click()
    for side, step in steps.items():
        assert seen[side] == [[{str(move[4])}, move[3]] for move in step["moves"]]


def test_every_row_can_be_chosen_on_either_side(opened: Opened, data: Mapping[str, object]) -> None:
    page = opened()
    for number, row in enumerate(data["rows"]):
        for side in ("left", "right"):
            put(page, side, number)
            place = page.locator(f"[data-side={side}]")
            assert place.locator("h3").inner_text() == row["name"]
            assert (row["emulated"] in place.locator(".summary").inner_text()) and (
                ("(emulated)" in row["name"]) == bool(row["emulated"])
            )
            step = step_of(data, number, data["start"]["devices"])
            if isinstance(step, str):  # why the row refuses this model
                assert step in place.inner_text()
                continue
            assert place.locator(".device").count() == len(step["devices"])
    assert page.locator("#left option").all_text_contents() == [row["name"] for row in data["rows"]]


def test_a_figure_says_that_it_is_predicted(opened: Opened) -> None:
    page = opened()
    for said in page.locator(".totals dd").all_inner_texts():
        assert "predicted" in said
    assert all("predicted" in line for line in page.locator(".moves li").all_inner_texts())
    page.locator("#next").click()
    assert "(predicted)" in page.locator("[data-side=left] .now").inner_text()


def test_a_twin_is_put_beside_its_twin(opened: Opened) -> None:
    page = opened()
    assert page.locator("[data-side=left] .counterpart button").is_hidden()  # fsdp has none
    page.locator("[data-side=right] .counterpart button").click()
    assert page.locator("[data-side=left] h3").inner_text() == "torch:rpc_parameter_server"
    assert page.locator(".counterpart button:visible").count() == 0


def test_what_is_chosen_can_be_passed_on_as_an_address(opened: Opened, explorer: Path) -> None:
    page = opened()
    put(page, "devices", 2)
    page.locator("[data-side=right] .counterpart button").click()
    page.goto("about:blank")
    address = f"{explorer.as_uri()}#left=tf%3Adtensor&right=torch%3Atp&devices=4"
    page.goto(address)
    assert page.locator("h3").all_inner_texts()[:2] == ["tf:dtensor", "torch:tp"]
    assert page.locator(".mesh").all_inner_texts() == ["On tensor=4.", "On tensor=4."]
    assert page.url.startswith(f"{address}&width=")


def test_it_plays_to_the_end_and_stops(opened: Opened) -> None:
    page = opened()
    page.locator("#place").evaluate("each => { each.value = each.max - 1; each.dispatchEvent(new Event('input')); }")
    page.locator("#speed").select_option("2")
    page.locator("#play").click()
    assert page.locator("#play").inner_text() == "Pause"
    page.wait_for_function("document.getElementById('play').textContent === 'Play'", timeout=20_000)
    assert page.locator("#place").evaluate("each => each.value === each.max")


def test_shards_move_unless_motion_is_unwanted(opened: Opened) -> None:
    page = opened()
    moved = """() => new Promise(done => {
        const read = () => document.querySelector('[data-side=left] .shard').getAttribute('transform');
        const before = read();
        let frames = 0;
        const look = () => read() !== before ? done(true) : frames++ < 30 ? requestAnimationFrame(look) : done(false);
        requestAnimationFrame(look);
    })"""
    for motion, wanted in (("reduce", False), ("no-preference", True)):
        page.emulate_media(reduced_motion=motion)
        page.locator("#place").evaluate("each => { each.value = 1; each.dispatchEvent(new Event('input')); }")
        page.locator("#speed").select_option("0.5")
        page.locator("#play").click()
        assert page.evaluate(moved) is wanted
        page.locator("#play").click()


def test_it_can_be_used_by_keyboard(opened: Opened) -> None:
    page = opened()
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert reached == ["left", "right", "devices", "play", "back", "next", "speed", "place"]
    page.keyboard.press("ArrowRight")
    assert page.locator("#place").input_value() == "1"
    page.locator("#devices").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#devices-said").inner_text() == "4"
    assert page.locator("#devices").get_attribute("aria-valuetext") == "4"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    assert page.locator("#place").input_value() == "2"
    page.keyboard.press("Space")
    assert page.locator("#play").inner_text() == "Pause"
    page.locator("#play").focus()
    page.keyboard.press("Enter")
    assert page.locator("#play").inner_text() == "Play"


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        *((390, "dark"), (768, "light"), (1440, "light")),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((390, "light"), (1440, "dark"))),
    ],
)
def test_nothing_overflows_and_axe_finds_nothing(opened: Opened, width: int, scheme: str) -> None:
    """Each width and each scheme; `make test-slow` has further pairs."""
    page = opened(width, scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    page.locator("#next").click()
    put(page, "devices", 3)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    beyond = """[...document.querySelectorAll('.stage svg *')].filter(each => {
        const box = each.getBoundingClientRect(), stage = each.closest('.stage').getBoundingClientRect();
        return box.width && (box.right > stage.right + 1 || box.left < stage.left - 4);
    }).map(each => `${each.tagName} ${each.textContent}`)"""
    assert page.evaluate(beyond) == []
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, options={"resultTypes": ["violations"]}).response
    assert found["passes"]
    assert [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in found["violations"]] == []

"""Figures for a paper: every mark is where its value is, at either width, and can be told from the others without colour."""

import re
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.page import losses, memory, speed, wire
from samestep.experiments.page.loaded import Facet
from samestep.experiments.page.paper.figures import COLUMN, NAMES, PAGE
from samestep.experiments.page.paper.helvetica import text_width
from samestep.experiments.page.paper.marks import HATCHES, hatched
from samestep.experiments.page.paper.pdf import colors
from samestep.experiments.page.plots import Plot
from samestep.experiments.page.rendering import HERE
from tests.page.pdfs import operations

NEAR = 0.05
"""Points by which a mark may be off: either end is rounded to a hundredth of a percent of at most 500 points, by 0.025."""
BARS = {"speed": speed.plot, "memory": memory.plot, "sent": wire.plot}


# --- its marks ------------------------------------------------------------------------------------------------------------


def drawn_bars(content: bytes, color: str) -> list[tuple[float, float]]:
    """The left edge and the width, in points, of each filled rectangle of a colour."""
    wanted = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    scale, filled, box, found = 1.0, [0.0], [0.0], []
    for operands, operator in operations(content):
        if operator == b"cm" and scale == 1.0:
            scale = float(operands[0])
        elif operator == b"rg":
            filled = [float(each) for each in operands]
        elif operator == b"re":
            box = [float(each) * scale for each in operands]
        elif operator == b"f" and filled == pytest.approx(wanted, abs=1e-3):
            found.append((box[0], box[2]))
    return found


@pytest.mark.parametrize("inches", [COLUMN, PAGE])
def test_a_bar_is_as_long_as_its_bytes(facet: Facet, found: Comparison, inches: float, tmp_path: Path) -> None:
    """One scale for all parts: points by byte, and each part begins where the one before it ends."""
    content = found.plot("memory").save(tmp_path / "memory.pdf", inches).read_bytes()
    plot = memory.plot(facet)
    assert plot is not None
    scales, bars = [], []
    for kind in ("params", "gradients", "optimizer", "activations"):
        marks = [mark for line in plot.lines for mark in line.marks if mark.kind.split()[-1] == kind]
        boxes = drawn_bars(content, colors()[f"--{kind}"])[1:]  # the first is the key's
        assert len(boxes) == len(marks) > 0
        scales += [(width, float(str(mark.data["data-value"]))) for (_, width), mark in zip(boxes, marks, strict=True)]
        bars += boxes
    per_byte = sum(width for width, _ in scales) / sum(value for _, value in scales)
    assert all(width == pytest.approx(per_byte * value, abs=NEAR) for width, value in scales)
    start = min(x for x, _ in bars)
    assert {round(x, 1) for x, _ in drawn_bars(content, colors()["--params"])[1:]} == {round(start, 1)}


def _circles(content: bytes) -> list[tuple[float, float]]:
    """The middle of every circle and square, in points from the left and the top."""
    scale, middles = 1.0, []
    edge: list[float] = []
    for operands, operator in operations(content):
        numbers = [float(each) for each in operands] if operator in (b"cm", b"m", b"c", b"re") else []
        if operator == b"cm" and scale == 1.0:
            scale = numbers[0]
        elif operator == b"m":
            edge = numbers
        elif operator == b"c" and numbers[5] == pytest.approx(edge[1]) and numbers[4] < edge[0]:
            middles.append(((numbers[4] + edge[0]) / 2 * scale, edge[1] * scale))  # the left end of the circle
        elif operator == b"re" and numbers[2] == numbers[3]:
            middles.append(((numbers[0] + numbers[2] / 2) * scale, (numbers[1] + numbers[3] / 2) * scale))
    return middles


@pytest.mark.parametrize("inches", [COLUMN, PAGE])
def test_a_point_is_where_its_speed_and_memory_are(found: Comparison, inches: float, tmp_path: Path) -> None:
    figure = found.plot("tradeoff")
    groups = [group for group in figure.draw(inches * 108).iter("g") if group.get("data-speed")]
    rights = [group for group in groups if group.find("circle") is not None or group.find("rect") is not None]
    content = figure.save(tmp_path / "tradeoff.pdf", inches).read_bytes()
    middles = _circles(content)
    assert len(middles) == len(rights) >= 4
    by_speed = [(float(str(group.get("data-speed"))), y) for group, (_, y) in zip(rights, middles, strict=True)]
    (first, top), (last, bottom) = max(by_speed), min(by_speed)
    for value, y in by_speed:
        wanted = top + (bottom - top) * (first - value) / (first - last)
        assert y == pytest.approx(wanted, abs=NEAR)


@pytest.mark.parametrize("width", [COLUMN * 108, PAGE * 108])
def test_every_mark_of_the_page_is_in_the_figure(facet: Facet, found: Comparison, width: float) -> None:
    for name, make in BARS.items():
        plot = make(facet)
        assert isinstance(plot, Plot)
        values = [str(value) for line in plot.lines for mark in line.marks for value in mark.data.values()]
        drawn = found.plot(name).draw(width)
        kept = [value for each in drawn.iter("g") for key, value in each.attrib.items() if key.startswith("data-")]
        assert sorted(kept) == sorted(values)


@pytest.mark.parametrize("width", [COLUMN * 108, PAGE * 108])
@pytest.mark.parametrize("name", NAMES[:-1])
def test_nothing_leaves_a_figure(found: Comparison, name: str, width: float) -> None:
    root = found.plot(name).draw(width)
    height = float(str(root.get("height")))
    places = [
        (float(x), float(y)) for d in root.iter("path") for x, y in re.findall(r"([\d.-]+) ([\d.-]+)", d.get("d", ""))
    ]
    places += [
        (float(each.get("x", 0)), float(each.get("y", 0))) for tag in ("text", "rect") for each in root.iter(tag)
    ]
    places += [
        (float(each.get("x", 0)) + float(each.get("width", 0)), float(each.get("y", 0))) for each in root.iter("rect")
    ]
    places += [
        (float(each.get("cx", 0)) + side * float(each.get("r", 0)), float(each.get("cy", 0)))
        for each in root.iter("circle")
        for side in (-1, 1)
    ]
    for each in root.iter("text"):  # at least as wide as in the font of the PDF
        wide = text_width("".join(each.itertext()), 11.0, is_bold=False)
        anchor = {"end": -1.0, "middle": 0.5}.get(str(each.get("class")).split()[-1], 1.0)
        places.append((float(each.get("x", 0)) + anchor * wide, float(each.get("y", 0))))
    assert len(places) > 20
    assert [each for each in places if not (-0.1 <= each[0] <= width + 0.1 and -0.1 <= each[1] <= height + 0.1)] == []


def test_curves_of_the_page_and_of_the_figure_have_the_same_points(facet: Facet, found: Comparison) -> None:
    panel = dict(losses.panels(facet))["deviations"]
    root = found.plot("deviations").draw(PAGE * 108)
    curves = [each for each in root.iter("path") if each.find("title") is not None]
    assert len(curves) == len(panel.curves)
    for curve, wanted in zip(curves, panel.curves, strict=True):
        mine, theirs = _points(curve.attrib["d"]), [point for part in wanted.parts for point in part]
        per_x, per_y = (_stretch([p[axis] for p in mine], [p[axis] for p in theirs]) for axis in (0, 1))
        assert len(mine) == len(theirs) > 10
        for (x, y), (to_x, to_y) in zip(mine, theirs, strict=True):
            assert x - mine[0][0] == pytest.approx(per_x * (to_x - theirs[0][0]), abs=0.1)
            assert y - mine[0][1] == pytest.approx(per_y * (to_y - theirs[0][1]), abs=0.1)


def _points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]


def _stretch(mine: list[float], theirs: list[float]) -> float:
    return (max(mine) - min(mine)) / (max(theirs) - min(theirs))


# --- without colour -------------------------------------------------------------------------------------------------------


def _luminance(color: str) -> float:
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _in_the_dark() -> dict[str, str]:
    text = "".join((HERE / name).read_text() for name in ("page.css", "drawing.css"))
    _, *blocks = text.split("@media screen and (prefers-color-scheme: dark) {")
    assert blocks
    rules = [re.search(r":root \{([^}]*)\}", block)[1] for block in blocks]  # type: ignore[index]
    return dict(re.findall(r"(--[\w-]+): ([^;]+);", "".join(rules)))


GROUNDS = ("--paper", "--panel", "--line", "--ink", "--quiet", "--link", "--heat")
"""What is no mark: the ground, its rules, and text, which the next test but one holds to more."""


@pytest.mark.parametrize("is_dark", [False, True], ids=["light and paper", "dark"])
@pytest.mark.parametrize("ground", ["--paper", "--panel"])
def test_every_colour_of_a_mark_stands_out_from_its_ground(ground: str, is_dark: bool) -> None:
    """WCAG 2.2, 1.4.11: 3 to 1, of what the style sheets say. Paper has the colours of the light scheme."""
    found = colors() | (_in_the_dark() if is_dark else {})
    marks = {name for name in found if name not in GROUNDS}
    assert len(marks) >= 16
    ratios = {name: contrast(found[name], found[ground]) for name in marks}
    assert {name: round(ratio, 2) for name, ratio in ratios.items() if ratio < 3} == {}
    text = {name: contrast(found[name], found[ground]) for name in ("--ink", "--quiet", "--link")}
    assert min(text.values()) >= 4.5


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_parts_of_a_bar_differ_in_print_without_colour(facet: Facet, found: Comparison) -> None:
    """Each class of memory has a hatch of its own."""
    key = memory.swatches([result for _, result in facet.rows])
    assert len(key) <= len(HATCHES) + 1
    root = found.plot("memory").draw(PAGE * 108)
    lines: dict[str, set[str]] = {}
    for group in root.iter("g"):
        if "measured" in group.get("class", "") and (style := group.find("rect[@style]")) is not None:
            slopes = {_slope(path) for path in group.iter("path")}
            lines.setdefault(style.attrib["style"], set()).update(slopes)
    assert len(lines) >= 4
    assert len(set(map(frozenset, lines.values()))) == len(lines)


def _slope(path: Element) -> str:
    x, y, to_x, to_y = map(float, re.findall(r"[\d.]+", path.attrib["d"]))
    return "|" if x == to_x else "-" if y == to_y else "/" if (to_y - y) * (to_x - x) < 0 else "\\"


@pytest.mark.parametrize("hatch", HATCHES[1:])
@pytest.mark.parametrize("box", [(10.0, 5.0, 30.0, 9.0), (0.0, 0.0, 3.0, 9.0), (0.0, 0.0, 200.0, 4.0)])
def test_hatches_stay_inside_their_box(hatch: str, box: tuple[float, float, float, float]) -> None:
    x, y, width, height = box
    for line in hatched(hatch, box):
        for a, b in line:
            assert x - 1e-9 <= a <= x + width + 1e-9 and y - 1e-9 <= b <= y + height + 1e-9


def test_frameworks_have_shapes_and_what_is_wrong_has_a_cross(found: Comparison) -> None:
    shapes = {}
    for group in found.plot("tradeoff").draw(PAGE * 108).iter("g"):
        name = next(text.text or "" for text in group.iter("text"))
        shapes[name] = [child.tag for child in group if child.tag in ("circle", "rect")]
    assert shapes["torch:fsdp"] == ["circle"]
    assert shapes["tf:mirrored"] == ["rect"]
    assert shapes["torch:c10d, not the same step"] == []

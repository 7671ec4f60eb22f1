"""What the first screen answers, and its figure: every mark is where its value is."""

import itertools
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.experiments.comparing import stored
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.experiments.page.drawings.svg import file_of
from samestep.experiments.page.drawings.trade import LEFT, LINE, trade
from samestep.experiments.page.verdicts import answers
from samestep.notebook import as_html
from tests.page import runs
from tests.page.runs import trained

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return stored.load(runs.comparison(tmp_path_factory.mktemp("first") / "comparison"))


def test_three_answers_with_how_sure_each_is(found: Comparison) -> None:
    fastest, holds, sends = answers(found)
    assert fastest.answer == "torch:fsdp, 1.40k examples/s"
    assert fastest.certainty == "its interval lies above that of the next, tf:mirrored"
    least = min(runs.RATES, key=lambda cell: sum(map(ord, cell)) if cell != "torch:c10d" else math.inf)
    assert holds.answer.startswith(least)
    assert (holds.question, sends.question) == ("holds least", "sends least")


def test_one_round_ranks_nothing() -> None:
    rows = [Row.of(Cell.parse(cell), trained(cell, rate)) for cell, rate in (("torch:ddp", 10.0), ("torch:fsdp", 20.0))]
    fastest, *_ = answers(Comparison(tuple(rows)))
    assert fastest.answer.startswith("torch:fsdp")
    assert "measured once" in fastest.certainty or "share cores" in fastest.certainty


def test_a_row_alone_answers_nothing() -> None:
    alone = Comparison((Row.of(Cell.parse("torch:ddp"), trained("torch:ddp", 10.0)),))
    assert answers(alone) == []
    with pytest.raises(ConfigError, match="fewer than two rows were measured"):
        alone.plot()


def _places(svg: ElementTree.Element) -> dict[str, tuple[float, float, float, float, float]]:
    """Name -> bytes, speed, x, y of the mark, and y of the name."""
    places = {}
    for group in svg.iter(f"{SVG}g"):
        label = next(group.iter(f"{SVG}text"))
        line = next(group.iter(f"{SVG}path")).attrib["d"].removeprefix("M").split("L")[0]
        x, y = map(float, line.split())
        values = (float(group.attrib["data-bytes"]), float(group.attrib["data-speed"]))
        places[str(label.text)] = (*values, x, y, float(label.attrib["y"]))
    return places


def test_every_mark_is_where_its_value_is(found: Comparison) -> None:
    drawn = trade(found)
    assert drawn is not None
    places = _places(ElementTree.fromstring(file_of(drawn)))
    marked = {"torch:c10d": "torch:c10d, not the same step", "torch:dp": "torch:dp (emulated)"}
    assert set(places) == {marked.get(cell, cell) for cell in runs.RATES}
    (bytes_0, speed_0, x_0, y_0, _), (bytes_1, speed_1, x_1, y_1, _) = (
        places["torch:fsdp"],
        places["torch:dp (emulated)"],
    )
    per_byte = (x_1 - x_0) / (bytes_1 - bytes_0)
    assert speed_0 > speed_1 and y_0 < y_1
    for held, _, x, _, _ in places.values():
        assert x == pytest.approx(x_0 + per_byte * (held - bytes_0), abs=0.5)
    heights = sorted(label for *_, label in places.values())
    assert min(b - a for a, b in itertools.pairwise(heights)) >= LINE - 1e-6


def test_long_names_leave_room_for_their_points() -> None:
    long = "+learning_rate_schedule=cosine+decay_steps=20+accumulation_steps=2+clip_norm=0.125+vector_rate=0.5+warmup_steps=2"
    cells = [f"torch:{name}{long}" for name in ("ddp", "fsdp")]
    rows = [Row.of(Cell.parse(cell), trained(cell, rate)) for cell, rate in zip(cells, (10.0, 20.0), strict=True)]
    drawn = trade(Comparison(tuple(rows)))
    assert drawn is not None
    svg = ElementTree.fromstring(file_of(drawn))
    (*_, ddp, _, _), (*_, fsdp, _, _) = sorted(_places(svg).values())
    assert min(ddp, fsdp) > LEFT + 100, "what holds nearly as much as the most is near the right end of its axis"
    assert sorted(title.text for group in svg.iter(f"{SVG}g") for title in group.iter(f"{SVG}title")) == sorted(cells)


def test_a_comparison_draws_itself_for_a_notebook_and_a_file(found: Comparison, tmp_path: Path) -> None:
    figure = found.plot()
    assert figure._repr_svg_().startswith("<svg")
    path = figure.save(tmp_path / "speed.svg")
    assert ElementTree.fromstring(path.read_text()).tag == f"{SVG}svg"
    assert "<table>" in as_html(found.report(""))

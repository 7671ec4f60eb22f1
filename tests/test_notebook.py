"""At a prompt a result is one line, in a notebook a table and a sentence; a comparison is a data frame if asked for."""

import dataclasses
import types
from collections.abc import Callable
from typing import Literal

import pytest

import samestep
from samestep.common.cell import Cell
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.notebook import SHOWN, as_html, shorten
from tests.experiments.comparisons import TRAINED

COMPARISON = Comparison((Row.of(Cell.parse("torch:ddp"), TRAINED),))


VALUES: dict[str, Callable[[], object]] = {
    "a run": lambda: TRAINED,
    "a comparison": lambda: COMPARISON,
    "a row": lambda: COMPARISON.rows[0],
    "a row without a result": lambda: Row(Cell.parse("torch:fsdp"), "failed", "it died"),
    "predictions": lambda: samestep.predict(devices=2),
    "a prediction": lambda: samestep.predict("torch:fsdp", devices=2).rows[0],
    "advice": lambda: samestep.advise("gpt3-175b", nodes=8, batch_size=384),
}
"""Made by the tests that show them: every process of pytest imports this file."""
SAID = {
    "a run": "took the oracle",
    "a row": "took the oracle",
    "a comparison": "took the oracle",
    "a row without a result": "torch:fsdp failed: it died",
}


def text_of(value: object) -> str:
    """What IPython prints of a value, which asks for it as this does."""
    printed: list[str] = []
    getattr(value, "_repr_pretty_")(types.SimpleNamespace(text=printed.append), False)  # noqa: B009
    return printed[0]


def page_of(value: object) -> str:
    return getattr(value, "_repr_html_")()  # noqa: B009


@pytest.mark.parametrize("name", VALUES)
def test_what_is_shown_is_short(name: str) -> None:
    assert all(getattr(samestep, each) for each in samestep.__all__)  # what was asked for has its forms from then on
    value = VALUES[name]()
    assert len(repr(value).splitlines()) == 1
    assert len(text_of(value).splitlines()) < 40
    page = page_of(value)
    assert page.count("<table>") == (name != "a row without a result")
    assert page.count("<svg") <= 1
    assert SAID.get(name, "") in text_of(value)
    assert SAID.get(name, "") in " ".join(page.split())


def test_a_long_text_keeps_its_first_lines_and_its_verdict() -> None:
    table = "\n".join(f"| row {number} |" for number in range(60))
    short = shorten(f"Of what.\n\n{table}\n\n* a legend\n\nAll of them took the same step.").splitlines()
    assert len(short) < 40
    assert short[0] == "Of what." and short[-1] == "All of them took the same step."
    assert "... report() has the rest" in short
    assert "* a legend" not in short


def test_every_type_that_the_package_offers_has_its_forms() -> None:
    offered = {getattr(samestep, name) for name in samestep.__all__}
    results = {each for each in offered if dataclasses.is_dataclass(each)} - {samestep.Model}
    assert results == {*SHOWN}


def test_text_becomes_html() -> None:
    text = "A <b>\nsentence.\n\n| a | b |\n|---|---|\n| 1 | x<y |\n\n* one\n  more\n* two"
    assert as_html(text) == (
        "<p>A &lt;b&gt; sentence.</p>\n"
        "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>x&lt;y</td></tr></tbody></table>\n"
        "<ul><li>one more</li><li>two</li></ul>"
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_comparison_is_a_data_frame(library: Literal["pandas", "polars"]) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    frame = COMPARISON.frame(library)
    assert list(frame["cell"]) == ["torch:ddp"]
    assert frame["examples_per_second_median"][0] == TRAINED.examples_per_second.median


def test_there_are_two_kinds_of_data_frames() -> None:
    with pytest.raises(samestep.ConfigError, match=r"unknown library 'dask'.*Choose from: pandas, polars"):
        COMPARISON.frame("dask")  # type: ignore[arg-type]

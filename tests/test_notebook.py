"""In a notebook a result is a sentence and a table, and a comparison is a data frame where one is asked for."""

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import samestep
from samestep.common.cell import Cell
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.notebook import SHOWN, as_html, register
from tests.experiments.comparisons import TRAINED

COMPARISON = Comparison((Row.of(Cell.parse("torch:ddp"), TRAINED),))


class Formatter(dict[type, Callable[..., object]]):
    """IPython's formatter of one kind, as far as it is used."""

    def for_type(self, kind: type, function: Callable[..., object]) -> None:
        self[kind] = function


@pytest.fixture
def formatters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Formatter]:
    made = {"text/html": Formatter(), "text/plain": Formatter()}
    shell = types.SimpleNamespace(display_formatter=types.SimpleNamespace(formatters=made))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    register()
    return made


def test_every_type_has_both_forms(formatters: dict[str, Formatter]) -> None:
    assert set(SHOWN) == set(formatters["text/html"]) == set(formatters["text/plain"])


@pytest.mark.parametrize("value", [TRAINED, COMPARISON], ids=["a run", "a comparison"])
def test_what_is_shown_is_short_and_has_the_verdict(formatters: dict[str, Formatter], value: object) -> None:
    page = formatters["text/html"][type(value)](value)
    printed: list[str] = []
    printer = types.SimpleNamespace(text=printed.append)
    formatters["text/plain"][type(value)](value, printer, False)
    assert "took the oracle" in printed[0]
    assert len(printed[0].splitlines()) <= 40
    assert str(page).count("<table>") == 1
    assert "took the oracle" in " ".join(str(page).split())


def test_advice_is_a_ranking_and_why_the_first_is_first(formatters: dict[str, Formatter]) -> None:
    advice = samestep.advise("gpt3-175b", nodes=64, batch_size=1536)
    printed: list[str] = []
    formatters["text/plain"][type(advice)](advice, types.SimpleNamespace(text=printed.append), False)
    assert len(printed[0].splitlines()) <= 40
    assert advice.first.candidate.run.name in printed[0]
    assert str(formatters["text/html"][type(advice)](advice)).count("<table>") == 1


def test_text_becomes_html() -> None:
    text = "A <b>\nsentence.\n\n| a | b |\n|---|---|\n| 1 | x<y |\n\n* one\n  more\n* two"
    assert as_html(text) == (
        "<p>A &lt;b&gt; sentence.</p>\n"
        "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>x&lt;y</td></tr></tbody></table>\n"
        "<ul><li>one more</li><li>two</li></ul>"
    )


def test_a_process_without_ipython_imports_none() -> None:
    look = "import sys, samestep.api; print('IPython' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    assert done.stdout == "False\n"


def test_a_comparison_is_a_data_frame() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = COMPARISON.frame()
    assert list(frame["cell"]) == ["torch:ddp"]
    assert frame["examples_per_second_median"][0] == TRAINED.examples_per_second.median

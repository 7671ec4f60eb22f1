"""`samestep report` on one record and on two: what is said, what is drawn, and what is refused."""

import re
from pathlib import Path

import pytest

from samestep.common.errors import ConfigError
from samestep.experiments import report
from samestep.experiments.page.records.record_figures import MOST_TENSORS, most_telling
from samestep.experiments.page.records.record_page import page_of_pair, report_records
from samestep.experiments.page.rendering import render
from tests.page.recorded_pairs import made_pairs

MARKUP = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    return made_pairs(tmp_path_factory)


def sections(text: str) -> list[str]:
    return re.findall(r'<section id="(\w+)"', text)


def headline(text: str) -> str:
    return re.findall(r'class="headline">([^<]*)', text)[0]


def test_a_pair_has_a_verdict_curves_and_tensors(pairs: dict[str, list[Path]]) -> None:
    text = page_of_pair(pairs["sum_for_mean"])
    assert sections(text) == ["verdict", "curves", "tensors", "provenance"]
    assert headline(text).startswith(
        "not the same: step 0, gradient, layer net.head: every gradient of B is 2.000 times"
    )
    assert "tensorflow/tensorflow#25806" in text and "Gradients at step 0" in text
    assert len(re.findall("<td>2<", text)) == 6 and text.count(", differs<") == 6
    assert "http" not in text.replace("http://www.w3.org", "")


def test_healthy_records_show_the_step_that_differs_most(pairs: dict[str, list[Path]]) -> None:
    text = page_of_pair(pairs["healthy"])
    assert headline(text) == "same: 5 steps." and ", differs<" not in text
    assert re.search(r"the largest difference is [0-9.]+ times what rounding makes", text)


def test_without_reruns_unit_roundoffs_stand_for_rounding(pairs: dict[str, list[Path]]) -> None:
    lacks = "A holds no reruns, so the effect of rounding was not measured but estimated"
    assert lacks in page_of_pair([pairs[name][1] for name in ("healthy", "sum_for_mean")])
    assert lacks not in page_of_pair(pairs["healthy"][::-1])  # those of B are as good


def test_updates_show_weights_and_nothing_is_drawn_of_what_was_not_looked_at(pairs: dict[str, list[Path]]) -> None:
    assert "Weights at step 0" in page_of_pair(pairs["update_times"])
    assert sections(page_of_pair(pairs["no numbers"])) == ["verdict", "curves", "provenance"]


def test_one_record_has_its_facts_and_curves(pairs: dict[str, list[Path]]) -> None:
    text = report_records(pairs["healthy"][1:], "html")
    assert sections(text) == ["facts", "curves", "provenance"]
    assert "recorded 5 steps, 2 ranks, 9 tensors" in headline(text)
    assert "had no gradient at any update: net.unused.weight" in text
    assert [text.count(f"<h3>{title}</h3>") for title in ("Loss", "Gradient", "Learning rate")] == [1, 1, 1]


def test_what_a_record_holds_is_text(pairs: dict[str, list[Path]]) -> None:
    text = report_records(pairs["markup"], "html")
    assert MARKUP not in text and "&lt;script&gt;alert" in text


def test_curves_have_finite_places(pairs: dict[str, list[Path]]) -> None:
    for paths in pairs.values():
        text = report_records(paths, "html")
        drawn = re.findall(r' d="([^"]*)"', text) + re.findall(r"(?:left|width|bottom):([^;%]*)%", text)
        assert drawn and not [each for each in drawn if "nan" in each or "inf" in each]


def test_tensors_that_differ_are_drawn_first() -> None:
    from tests.page.recorded_pairs import shown

    tensors = [shown(str(number), differs=number > 70) for number in range(80)]
    drawn = most_telling(tensors)
    assert len(drawn) == MOST_TENSORS and sum(each.differs for each in drawn) == 9
    assert [int(each.name) for each in drawn] == sorted(int(each.name) for each in drawn)


def test_the_command_that_lists_further_tensors_is_code() -> None:
    """It stood between backticks, as a terminal has it."""
    shown = render("record_tensors", {"figures": [], "rows": [], "step": 0, "phase": "gradient", "left": 3})
    assert "3 more in <code>samestep diff --format json</code>." in shown


def test_the_command_writes_a_page_and_other_formats(
    pairs: dict[str, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = map(str, pairs["sum_for_mean"])
    assert report.main([a, b]) == 0 and capsys.readouterr().out == "Report: report.html\n"
    assert Path("report.html").read_text().startswith("<!doctype html>")
    assert report.main([a, b, "--format", "json"]) == 0
    assert '"sum_for_mean"' in capsys.readouterr().out
    for arguments, message in (
        ([a, b, a], "3 directories are named, with records among them"),
        ([a, "--format", "csv"], "--format csv of one record is not there"),
        ([a, str(tmp_path)], "is not a record: it holds no rank-0.steps"),
    ):
        with pytest.raises(ConfigError, match=message):
            report.main(arguments)

"""What programs read: JSON, CSV and JUnit's XML, alone on stdout."""

import csv
import dataclasses
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

import pytest

from samestep.common.catalog import cells
from samestep.common.cell import Cell
from samestep.common.runtime.measured import validate
from samestep.common.runtime.records import RunResult
from samestep.experiments import compare, strategies
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.experiments.printing.formats import Case, Document, write
from tests.experiments.comparisons import MISSED, TRAINED, UNJUDGED, make_up

DIED = "rank-1 died:\n\x1b[31mboom\x1b[0m \x00 <&> \ud800"
ROWS = (
    Row.of(
        Cell.parse("numpy:oracle"), dataclasses.replace(TRAINED, framework="numpy", strategy="oracle", parity=UNJUDGED)
    ),
    Row.of(Cell.parse("torch:ddp"), TRAINED, seconds=1.5),
    Row.of(Cell.parse("torch:ddp+clip_norm=1"), dataclasses.replace(TRAINED, parity=MISSED)),
    Row.of(Cell.parse("torch:zero2"), dataclasses.replace(TRAINED, parity=UNJUDGED)),
    Row(Cell.parse("torch:hybrid+mesh=pipe=2,tensor=2"), "failed", DIED),
    Row(Cell.parse("tf:mirrored"), "unavailable", "tensorflow is not installed"),
    Row(Cell.parse("tf:dtensor"), "not possible", "why"),
)
OUTCOMES = ["skipped", None, "failure", "skipped", "error", "skipped", "skipped"]
Printed = Callable[[str], str]


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """What `samestep compare` prints on stdout in a format."""
    monkeypatch.chdir(tmp_path)

    def printed(name: str) -> str:
        make_up(monkeypatch, {"torch:ddp": UNJUDGED})
        compare.main(["--strategies", "torch:ddp,torch:hybrid+mesh=pipe=2", "--format", name])
        return capsys.readouterr().out

    return printed


def strictly(text: str) -> dict:
    """The JSON of a text, without the numbers that only Python reads."""

    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_has_every_row_whole() -> None:
    told = strictly(Comparison(ROWS, named=("tf:mirrored",)).to_json())
    assert told["exit_code"] == 4
    assert told["exit_reason"] == f"torch:ddp+clip_norm=1 did not take the same step: {MISSED.reason}."
    assert [(row["cell"], row["status"]) for row in told["rows"]] == [(row.cell, row.status) for row in ROWS]
    for wanted, row in zip(ROWS, told["rows"], strict=True):
        assert row["reason"] == wanted.reason
        read = None if row["result"] is None else validate(RunResult, row["result"], "a row")
        assert read == wanted.result


def test_json_says_why_it_is_not_zero() -> None:
    good = Comparison(ROWS[:2])
    assert (strictly(good.to_json())["exit_code"], strictly(good.to_json())["exit_reason"]) == (0, "")
    lacking = strictly(Comparison(ROWS[:2], required=("numpy:oracle",)).to_json())
    assert lacking["exit_code"] == 3
    assert "numpy:oracle, which must be judged," in lacking["exit_reason"]
    assert strictly(Comparison(ROWS[:2], interrupt=KeyboardInterrupt()).to_json())["exit_code"] == 130
    assert strictly(Comparison(ROWS[:2], interrupt=KeyboardInterrupt("SIGTERM")).to_json())["exit_code"] == 143


def test_json_has_null_for_what_is_not_finite() -> None:
    odd = dataclasses.replace(TRAINED, metric_value=math.nan, losses=(math.inf, 1.0))
    result = strictly(Comparison((Row.of(Cell.parse("torch:ddp"), odd),)).to_json())["rows"][0]["result"]
    assert (result["metric_value"], result["losses"]) == (None, [None, 1.0])


# --- CSV --------------------------------------------------------------------------------------------------------------


def test_csv_has_one_row_a_cell_with_raw_numbers() -> None:
    told = list(csv.DictReader(io.StringIO(write(Comparison(ROWS).document(""), "csv")), strict=True))
    assert [(row["cell"], row["status"], row["reason"]) for row in told] == [(r.cell, r.status, r.reason) for r in ROWS]
    ddp, failed = told[1], told[4]
    assert None not in ddp
    assert float(ddp["parity_max_relative_loss"]) == TRAINED.parity.max_relative_loss
    assert float(ddp["examples_per_second_median"]) == TRAINED.examples_per_second.median
    assert int(ddp["state_bytes_per_device"]) == max(row.state_bytes for row in TRAINED.processes)
    assert float(ddp["sent_bytes_per_step"]) == float(ddp["predicted_sent_bytes_per_step"]) == 37328
    assert (ddp["parity_passed"], told[2]["parity_passed"], ddp["seconds"]) == ("true", "false", "1.5")
    assert {name for name, value in failed.items() if value} == {"cell", "status", "reason", "seconds"}


# --- JUnit ------------------------------------------------------------------------------------------------------------

ATTRIBUTES = {
    "testsuites": {"tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message"},
    "error": {"message"},
    "skipped": {"message"},
}
"""What CI systems read of each element, and which elements there are: the schema of Jenkins' plugin, as far as it is used."""


def cases(text: str) -> list[ElementTree.Element]:
    whole = ElementTree.fromstring(text)
    assert whole.tag == "testsuites"
    (suite,) = whole
    for element in whole.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag]
    for counted in (whole, suite):
        assert int(counted.attrib["tests"]) == len(suite)
        for outcome, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(counted.attrib[name]) == len(list(suite.iter(outcome)))
    return list(suite)


def outcome(case: ElementTree.Element) -> str | None:
    return case[0].tag if len(case) else None


def test_junit_has_a_case_a_row() -> None:
    found = cases(write(Comparison(ROWS).document(""), "junit"))
    assert [case.attrib["name"] for case in found] == [row.cell for row in ROWS]
    assert [outcome(case) for case in found] == OUTCOMES
    assert found[1].attrib["time"] == "1.500"
    assert found[2][0].attrib["message"] == f"torch:ddp+clip_norm=1 did not take the same step: {MISSED.reason}"
    assert found[4][0].text == "failed: rank-1 died:\n?[31mboom?[0m ? <&> ?"
    assert found[5][0].attrib["message"] == "unavailable: tensorflow is not installed"


@pytest.mark.parametrize(
    "comparison",
    [
        Comparison(ROWS[:2], interrupt=KeyboardInterrupt()),
        Comparison(ROWS[:2], required=("numpy:oracle",)),
        Comparison((ROWS[0], ROWS[5]), named=("tf:mirrored",)),
        Comparison((ROWS[0], ROWS[3]), parity=True),
    ],
)
def test_junit_is_as_red_as_the_exit_code(comparison: Comparison) -> None:
    *rows, whole = cases(write(comparison.document(""), "junit"))
    assert len(rows) == len(comparison.rows)
    assert outcome(whole) == "error"
    assert whole[0].attrib["message"] == comparison.exit_reason


# --- the commands -----------------------------------------------------------------------------------------------------


def test_a_comparison_prints_nothing_else(printed: Printed) -> None:
    rows = ["numpy:oracle", "torch:ddp", "torch:hybrid+mesh=pipe=2"]
    assert [row["cell"] for row in strictly(printed("json"))["rows"]] == rows
    assert [row["cell"] for row in csv.DictReader(io.StringIO(printed("csv")))] == rows
    assert [case.attrib["name"] for case in cases(printed("junit"))] == rows
    assert printed("github").startswith("`digits-mlp")


def test_the_catalogue_is_printed_alike(capsys: pytest.CaptureFixture[str]) -> None:
    names = cells()

    def printed(*arguments: str) -> str:
        assert strategies.main(arguments) == 0
        return capsys.readouterr().out

    assert [row["cell"] for row in strictly(printed("--format", "json"))["strategies"]] == names
    assert [row["cell"] for row in csv.DictReader(io.StringIO(printed("--format", "csv")))] == names
    assert [case.attrib["name"] for case in cases(printed("--format", "junit"))] == names
    (one,) = strictly(printed("pp", "--format", "json"))["strategies"]
    assert one["cell"] == "torch:pp"
    assert [option["name"] for option in one["options"]] == ["schedule", "microbatches"]


def test_a_suite_of_nothing_is_one() -> None:
    assert cases(write(Document("none", str, {}, [], []), "junit")) == []
    assert cases(write(Document("one", str, {}, [], [Case("a")]), "junit"))[0].attrib["time"] == "0.000"

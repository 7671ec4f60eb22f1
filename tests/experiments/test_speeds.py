"""What a comparison with rounds says of speeds, and that it fits."""

import csv
import dataclasses
import io
import json

import numpy as np
import pytest

from samestep.common.cell import Cell
from samestep.common.judging.percentiles import count_seconds
from samestep.common.judging.speed_comparison import LEAST_ROUNDS
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing import speeds
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import FAILED, Row
from samestep.experiments.comparing.speeds import MeasuredRow, judge_rows
from samestep.experiments.printing import tables
from samestep.experiments.printing.formats import write
from tests.results import EVERY_CELL, made

FACTORS = {"torch:single": 1.4, "torch:ddp": 1.0, "torch:fsdp": 0.7, "torch:zero1": 1.001}


@pytest.fixture(autouse=True)
def wide_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")


def rounds(cell: str, factor: float, count: int, scatter: float = 0.01) -> list[RunResult]:
    """Rounds of a cell that is so many times as fast as another; the same in every test."""
    random = np.random.default_rng(sum(map(ord, cell)))
    medians = 16_000 * factor * np.exp(scatter * random.normal(size=count))
    times: dict[int, int] = {}
    count_seconds(times, [0.002] * 57 + [0.02] * 3)
    return [made(cell, (median, median / 2, median * 2), step_times=times) for median in medians]


def compared(count: int, reference: str | None = "torch:ddp", scatter: float = 0.01) -> Comparison:
    rows = [Row.of(Cell.parse(cell), *rounds(cell, factor, count, scatter)) for cell, factor in FACTORS.items()]
    return Comparison(
        (Row.of(Cell.parse("numpy:oracle"), made("numpy:oracle")), *rows), repeats=count, reference=reference
    )


def cells_of(text: str, name: str) -> dict[str, str]:
    """A row of a table, by header."""
    lines = [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return dict(zip(lines[0], next(line for line in lines if line[0] == name), strict=True))


def test_from_five_rounds_on_each_row_has_a_verdict_against_the_reference() -> None:
    table = compared(5).table(wide=True)
    verdicts = {name: cells_of(table, name)["verdict"] for name in ["numpy:oracle", *FACTORS]}
    assert verdicts.pop("torch:single").endswith("x faster")
    assert verdicts.pop("torch:fsdp").endswith("x slower")
    assert verdicts == {"numpy:oracle": "", "torch:ddp": "reference", "torch:zero1": "not separated"}
    assert "examples/s against torch:ddp's in the same round" in table


@pytest.mark.parametrize("count", range(2, LEAST_ROUNDS))
def test_fewer_rounds_give_numbers_and_no_verdict(count: int) -> None:
    comparison = compared(count)
    table, report = comparison.table(wide=True), comparison.report("again")
    assert 1.2 < float(cells_of(table, "torch:single")["ratio"].removesuffix("x")) < 1.6
    assert "verdicts take 5 rounds" in table
    assert not [word for word in ("faster", "slower", "not separated", "speed: agrees") if word in report.lower()]


def test_one_round_shows_the_spread_of_its_windows_as_ever() -> None:
    report = compared(1).report("again")
    assert "[spread]" in report
    assert not [word for word in ("95 %", "verdict", "ratio", "Not separated from") if word in report]


def test_a_comparison_without_a_reference_has_intervals_and_compares_nothing() -> None:
    table = compared(5, None).table(wide=True)
    assert "[95 %]" in table
    assert "verdict" not in table


def test_what_is_not_separated_has_a_line_with_what_it_would_have_taken() -> None:
    report = compared(5).report("again")
    lines = report.partition("Not separated from torch:ddp:\n")[2].partition("\n\n")[0]
    assert lines.startswith("* torch:zero1: ")
    assert lines.count("* ") == 1
    assert "; 5 rounds can detect 1." in lines
    assert "with 90 % power, and " in lines


def test_more_scatter_makes_what_is_found_larger() -> None:
    small, large = (judged(compared(5, scatter=scatter), "torch:zero1").detectable for scatter in (0.01, 0.03))
    assert (large - 1) > 2.5 * (small - 1)


def judged(comparison: Comparison, name: str) -> speeds.Difference:
    return comparison.speeds[name].against


def test_a_speed_is_the_median_over_the_rounds_and_the_interval_encloses_it() -> None:
    table = compared(5).table(wide=True)
    medians = [result.examples_per_second.median for result in rounds("torch:ddp", 1.0, 5)]
    assert cells_of(table, "torch:ddp")["examples/s"].startswith(f"{np.median(medians) / 1000:.1f}k [")
    assert cells_of(table, "numpy:oracle")["examples/s"] == "16.2k", "one round has no interval"


def test_an_interval_that_says_nothing_is_not_printed() -> None:
    """Two rounds that differ twofold are followed by a third anywhere between a millionth and a million times as fast."""
    assert "[too few rounds]" in cells_of(compared(2, scatter=0.6).table(wide=True), "torch:ddp")["examples/s"]
    assert "[too few rounds]" not in compared(2).table(wide=True)


def test_percentiles_are_over_the_steps_of_all_rounds() -> None:
    """60 steps a round are too few for p99; 300 are not."""
    few, many = (cells_of(compared(count).table(wide=True), "torch:ddp") for count in (1, 5))
    assert few["step ms p50 p95 p99"] == "2.01 2.01 -"
    assert many["step ms p50 p95 p99"].startswith("2.01 2.01 ")
    assert float(many["step ms p50 p95 p99"].split()[2]) == pytest.approx(20, rel=0.011)


def test_a_row_that_is_confounded_shows_why_instead_of_a_verdict() -> None:
    rows = {cell: rounds(cell, factor, 5) for cell, factor in FACTORS.items()}

    def confounds(row: speeds.Rounds, other: speeds.Rounds) -> list[str]:
        assert other is rows["torch:ddp"]
        return ["dtype", "threads"] if row[0].strategy == "single" else []

    found = judge_rows(rows, "torch:ddp", confounds)
    assert found["torch:single"].verdict == "(dtype +1)"
    assert found["torch:single"].against is None
    assert found["torch:fsdp"].verdict.endswith("slower")
    others = {cell: each for cell, each in rows.items() if cell != "torch:single"}
    assert found["torch:fsdp"] == judge_rows(others, "torch:ddp")["torch:fsdp"], "it is no part of the correction"


def test_rows_that_are_all_confounded_do_not_lack_rounds() -> None:
    rows = {cell: rounds(cell, factor, 5) for cell, factor in FACTORS.items()}
    found = judge_rows(rows, "torch:ddp", lambda *_: ["busy"])
    table = tables.comparison([MeasuredRow(row[0], found[cell], cell) for cell, row in rows.items()])
    assert cells_of(table, "torch:fsdp")["verdict"] == "(busy)"
    assert "in parentheses, why a row is not ranked" in table
    assert "take 5 rounds" not in table


def test_a_row_that_is_emulated_has_its_rounds_in_the_table() -> None:
    """Its speed was looked for under its marked name: the table had the first round alone, and not why it is not ranked."""
    rows = [Row.of(Cell.parse(cell), *rounds(cell, 1.0, 5)) for cell in ("torch:ddp", "torch:dp")]
    found = cells_of(Comparison(tuple(rows), reference="torch:ddp").table(wide=True), "torch:dp (emulated)")
    assert ".." in found["examples/s"]
    assert found["verdict"].startswith("(")


def test_an_interrupted_comparison_judges_the_rounds_that_both_rows_have() -> None:
    rows = [
        Row.of(Cell.parse(cell), *rounds(cell, FACTORS[cell], count))
        for cell, count in (("torch:ddp", 7), ("torch:fsdp", 6))
    ]
    assert judged(Comparison(tuple(rows), reference="torch:ddp"), "torch:fsdp").rounds == 6


def test_a_row_that_took_another_step_is_not_judged() -> None:
    done = rounds("torch:fsdp", 0.7, 5)
    missed = dataclasses.replace(done[-1], parity=dataclasses.replace(done[-1].parity, passed=False))
    rows = {"torch:ddp": rounds("torch:ddp", 1.0, 5), "torch:fsdp": [*done[:-1], missed]}
    assert judge_rows(rows, "torch:ddp")["torch:fsdp"].verdict == ""


def test_a_row_that_failed_has_no_speed() -> None:
    done = [
        Row.of(Cell.parse("torch:fsdp"), *rounds("torch:fsdp", 1.0, 5)),
        Row(Cell.parse("torch:ddp"), FAILED, "it died"),
    ]
    comparison = Comparison(tuple(done), reference="torch:ddp")
    assert "verdict" not in comparison.report("again")
    assert [row["speed_rounds"] for row in comparison.document("").rows] == [5, None]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("count", [2, 5])
def test_every_row_fits_with_its_interval_and_its_verdict(
    width: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        Row.of(Cell.parse(name), *rounds(name, 1 + n % 3, 1 if n == 0 else count)) for n, name in enumerate(EVERY_CELL)
    ]
    report = Comparison(tuple(rows), reference="torch:ddp").report("again")
    assert max(map(len, report.splitlines())) <= width
    shown = cells_of(report, "torch:ddp")
    assert " [" in shown["examples/s"]
    assert shown["verdict" if count == 5 else "ratio"] == "reference"
    assert ("state KiB" in shown) == (width == 120)


def test_json_and_csv_carry_the_numbers() -> None:
    comparison = compared(5)
    record = json.loads(write(comparison.document(""), "json"))
    row = next(row for row in record["rows"] if row["cell"] == "torch:zero1")
    assert row["speed"]["against"]["verdict"] == "not separated"
    assert row["speed"]["prediction"]["low"] < row["speed"]["prediction"]["median"]
    table = {row["cell"]: row for row in csv.DictReader(io.StringIO(write(comparison.document(""), "csv")))}
    zero1 = table["torch:zero1"]
    assert float(zero1["against_reference_detectable"]) == pytest.approx(row["speed"]["against"]["detectable"])
    assert float(zero1["speed_low"]) < float(zero1["speed_median"]) < float(zero1["speed_high"])
    assert float(zero1["step_p95_seconds"]) == pytest.approx(0.002, rel=0.011)
    assert (zero1["against_reference_verdict"], table["torch:ddp"]["against_reference_verdict"]) == (
        "not separated",
        "",
    )

"""A prediction that misses is marked wherever results stand, and one line says by how much."""

import csv
import dataclasses
import io
import json

import pytest

from samestep.common.cell import Cell
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.page.loaded import Entry, Group, Loaded
from samestep.experiments.page.page import page
from samestep.experiments.page.rows import COLUMNS
from samestep.experiments.printing import tables
from samestep.experiments.printing.columns import explain_misses, misses
from samestep.experiments.printing.formats import write
from tests.results import alone, made


def off(cell: str, state: float = 1.0, sent: float = 1.0, **changes: object) -> RunResult:
    """A result of which so many times what was predicted was measured."""
    result = made(cell, **changes)
    held = [
        dataclasses.replace(row, optimizer_bytes=row.optimizer_bytes + round((state - 1) * row.state_bytes))
        for row in result.processes
    ]
    moved = [dataclasses.replace(row, sent_bytes_per_step=sent * row.sent_bytes_per_step) for row in held]
    return dataclasses.replace(result, processes=tuple(moved))


@pytest.mark.parametrize(("factor", "missed"), [(1.0, False), (1.04, False), (0.96, False), (1.06, True), (0.94, True)])
@pytest.mark.parametrize("quantity", ["state", "sent"])
def test_five_per_cent_are_allowed(quantity: str, factor: float, missed: bool) -> None:
    assert misses(off("torch:ddp", **{quantity: factor})).keys() == ({quantity} if missed else set())


def test_what_nobody_predicts_is_no_miss_and_what_was_predicted_as_nothing_is() -> None:
    result = made("torch:ddp")
    assert misses(result) == {}
    nothing = dataclasses.replace(result, predicted=dataclasses.replace(result.predicted, sent_bytes_per_step=0.0))
    assert misses(nothing) == {"sent": "(none was predicted)"}


def test_what_was_not_counted_may_be_what_is_missing() -> None:
    less, more = (off("torch:ddp", sent=factor, uncounted=("rank-1",)) for factor in (0.5, 2.0))
    assert misses(less) == {}
    assert misses(more).keys() == {"sent"}


def rows(*results: RunResult) -> tuple[Row, ...]:
    return tuple(Row(Cell.parse(f"torch:{result.strategy}"), "yes", results=(result,)) for result in results)


def test_the_terminal_marks_it_and_one_line_says_how_far() -> None:
    results = [off("torch:ddp"), off("torch:fsdp", sent=16.0, state=1.2)]
    printed = tables.comparison(alone(results), width=200)
    (right,) = [line for line in printed.splitlines() if line.startswith("| torch:ddp")]
    (wrong,) = [line for line in printed.splitlines() if line.startswith("| torch:fsdp")]
    assert right.count(")!") == 0 and wrong.count(")!") == 2
    lines = [line for line in printed.splitlines() if "more than 5 %" in line]
    assert len(lines) == 1 and "torch:fsdp state +20 %, sent +1,500 %" in lines[0] and "torch:ddp" not in lines[0]
    assert "more than 5 %" not in tables.comparison(alone(results[:1]), width=200)
    assert ")!" in tables.report(results[1]) and "more than 5 %" in tables.report(results[1])


def test_every_format_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    comparison = Comparison(rows(off("torch:ddp"), off("torch:fsdp", sent=2.0)))
    document = comparison.document("")
    found = json.loads(write(document, "json"))["rows"]
    assert [row["missed_predictions"] for row in found] == [{}, {"sent": "+100 %"}]
    lines = list(csv.DictReader(io.StringIO(write(document, "csv"))))
    assert [line["missed_predictions"] for line in lines] == ["", "sent +100 %"]
    assert ")!" in write(document, "github")


def test_the_page_marks_it_and_says_how_far() -> None:
    (column,) = [each for each in COLUMNS if each.title == "sent a step"]
    for factor, marked in ((1.0, False), (3.0, True)):
        (row,) = rows(off("torch:ddp", sent=factor))
        entry = Entry("r0", row.cell, row, MeasuredRow.of(row.results[0]), ())
        assert str(column.show(entry)).endswith(" !") == marked
        told = page(Loaded((Group("one", Comparison((row,)), (entry,)),)))
        assert ("torch:ddp sent +200\N{NO-BREAK SPACE}%" in told) == marked


def test_the_line_calls_rows_as_the_table_does() -> None:
    (line,) = explain_misses([("mine", off("torch:ddp", sent=2.0))])
    assert "mine sent +100 %" in line

"""The ledger of a step as it is printed."""

import dataclasses

import pytest

from samestep.common.ledger import Footprint, Ledger, Send
from samestep.common.run import parse
from samestep.common.strategy import Formula
from samestep.experiments.printing.ledger_table import Amount, ledger_of_run, ledger_table, relative_error
from tests.results import made

PREDICTED = Ledger(
    (Footprint.uniform("each", 1000, 2000), Footprint.uniform("master", 1500, 0)),
    (
        Send("forward", "all_gather", "shard", 4, 4096, 4),
        Send("backward", "all_gather", "shard", 4, 4096, 4),
        Send("backward", "reduce_scatter", "shard", 4, 8192, 2),
        Send("backward", "all_gather", "shard", 4, 1024),
    ),
    50_000,
)
MEASURED = dataclasses.replace(PREDICTED, sent_bytes_per_step=50_500)
TEXTBOOK = [Formula("sent", 40_000, "3 (N - 1) w Ψ", "a book"), Formula("idle share", 0.2, "(p - 1) / m", "another")]


def rows(table: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return {name: cells for name, *cells in lines}


def test_a_quantity_is_measured_predicted_and_compared_with_the_textbook() -> None:
    table = ledger_table(PREDICTED, MEASURED, TEXTBOOK, {"busy": 0.3, "idle": 0.1}, 120)
    told = rows(table)
    assert told["quantity"] == ["measured", "predicted", "error", "textbook"]
    assert told["parameters"] == ["1.5 KiB", "1.5 KiB", "exact", ""]
    assert told["state"] == ["3.9 KiB", "3.9 KiB", "exact", ""]
    assert told["sent"] == ["49.3 KiB", "48.8 KiB", "+1 %", "39.1 KiB"]
    assert told["forward: all_gather along shard"] == ["4.0 KiB in 4", "4.0 KiB in 4", "exact", ""]
    assert told["backward: all_gather along shard"] == ["5.0 KiB in 5", "5.0 KiB in 5", "exact", ""]
    assert told["idle share"] == ["25.0 %", "", "", "20.0 %"]
    assert "* textbook, sent: 3 (N - 1) w Ψ (a book)" in table


def test_without_a_run_there_is_nothing_measured() -> None:
    told = rows(ledger_table(PREDICTED, textbook=TEXTBOOK, width=120))
    assert told["quantity"] == ["predicted", "textbook"]
    assert told["sent"] == ["48.8 KiB", "39.1 KiB"]
    assert "busy" not in told


@pytest.mark.parametrize(
    ("measured", "predicted", "said"),
    [
        (Amount(10, 2), Amount(10, 2), "exact"),
        (Amount(10, 3), Amount(10, 2), "differs"),
        (Amount(9, 2), Amount(10, 2), "-10 %"),
        (Amount(1), Amount(0), "differs"),
        (None, Amount(1), ""),
        (Amount(1), None, ""),
    ],
)
def test_an_error_is_relative_to_the_prediction(measured: Amount | None, predicted: Amount | None, said: str) -> None:
    assert relative_error(measured, predicted) == said


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("cell", ["torch:ddp", "torch:pp", "tf:mirrored"])
def test_the_ledger_of_a_run_fits(cell: str, width: int) -> None:
    """Also of an older result, which has neither sends nor seconds."""
    result = made(cell)
    told = ledger_of_run(parse(result.config), result, width)
    assert max(map(len, told.splitlines())) <= width
    assert rows(told)["state"][0]
    full = ledger_table(PREDICTED, MEASURED, TEXTBOOK, {"busy": 0.3, "idle": 0.1}, width)
    assert max(map(len, full.splitlines())) <= width

"""Tables fit, numbers are short, and nothing is cut."""

import shlex

import pytest

from samestep.common.errors import count, percent
from samestep.experiments.printing.column_table import Column, cells, fit
from samestep.experiments.printing.command_lines import wrap_command
from samestep.experiments.printing.text import (
    PIPED_WIDTH,
    common_unit,
    decimal_size,
    fill,
    github,
    in_unit,
    percent_off,
    screen_width,
    short,
)

Pair = tuple[str, int]
COLUMNS: list[Column[Pair]] = [
    Column("name", lambda pair: pair[0]),
    Column("count", lambda pair: str(pair[1]), "how many"),
    Column("[squared]", lambda pair: f"[{pair[1] ** 2}]", "and its square", drop_priority=2, is_detail=True),
    Column("cube", lambda pair: str(pair[1] ** 3), drop_priority=1),
]
ROWS: list[Pair] = [("a", 10), ("b+option=long+other=longer", 99)]


def widest(table: str) -> int:
    return max(map(len, table.splitlines()))


@pytest.mark.parametrize("width", range(8, 20))
def test_a_number_stays_with_its_percent_sign(width: int) -> None:
    text = "the next is 3 % slower, and 12 % of it is waiting"
    lines = fill(text, width).splitlines()
    assert " ".join(lines) == text and not any(line.startswith("%") for line in lines)
    assert max(map(len, lines)) <= width


def test_a_detail_stands_behind_its_value() -> None:
    assert cells(COLUMNS, ROWS[:1]) == (["name", "count", "cube"], [["a", "10 [100]", "1000"]])


def test_columns_give_way_in_their_order_and_come_back_with_room() -> None:
    shown = [[column.header for column in fit(COLUMNS, ROWS, width)] for width in (None, 38, 37, 34, 33, 1)]
    whole, less, least = ["name", "count", "[squared]", "cube"], ["name", "count", "cube"], ["name", "count"]
    assert shown == [whole, whole, less, less, least, least]


@pytest.mark.parametrize("width", range(25, 80))
def test_a_table_is_no_wider_than_its_screen(width: int) -> None:
    shown = fit(COLUMNS, ROWS, width)
    table = github(*cells(shown, ROWS), width)
    assert widest(table) <= width
    assert len({len(line) for line in table.splitlines()}) == 1
    for part in ("b", "+option=long", "+other=longer", "99"):
        assert part in table


def test_a_strategy_is_broken_before_its_options_only() -> None:
    table = github(["strategy"], [["torch:pp+schedule=1f1b+microbatches=8"]], 24)
    assert table.splitlines()[2:] == ["| torch:pp        |", "| +schedule=1f1b  |", "| +microbatches=8 |"]
    name = "encoder_blocks.11.self_attention_projection_layer.weight"
    lines = github(["tensor", "off"], [[name, "1.25"]], 50).splitlines()
    assert max(map(len, lines)) <= 50
    assert "".join(line.split("|")[1].strip() for line in lines[2:]) == name
    assert "1.235e+09" in github(["strategy", "FLOP"], [["torch:ddp", "1.235e+09"]], 10)


def test_a_table_is_cut_where_it_is_widest() -> None:
    rows = [["torch:ddp", "a few words", "many words " * 20]]
    wrapped = github(["strategy", "few", "many"], rows, 60).splitlines()
    assert 50 < max(map(len, wrapped)) <= 60
    assert wrapped[2].startswith("| torch:ddp | a few words | many words many words")
    assert " ".join(" ".join(line.split("|")[3] for line in wrapped[2:]).split()) == rows[0][2].strip()
    assert len(github(["strategy", "few", "many"], rows).splitlines()) == 3


def test_columns_says_how_wide_the_screen_is_and_what_is_piped_is_as_wide_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert screen_width() == 77
    monkeypatch.delenv("COLUMNS")
    assert screen_width() == PIPED_WIDTH == 120


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0123456, "0.0123"),
        (9.684, "9.68"),
        (96.84, "96.8"),
        (968.4, "968"),
        (999.6, "1.00k"),
        (5000, "5.00k"),
        (57_238, "57.2k"),
        (999_400, "999k"),
        (1_234_567, "1.23M"),
    ],
)
def test_a_rate_has_three_digits(number: float, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("counts", "unit", "texts"),
    [
        ([], "B", []),
        ([0, 576], "B", ["0", "576"]),
        ([0, 511_590, 1_023_181], "KiB", ["0", "499.6", "999.2"]),
        ([511_590, 1_153_434], "KiB", ["499.6", "1,126"]),
        ([1024, 11_000_000], "MiB", ["0.001", "10.49"]),
        ([10_238_976], "KiB", ["9,999"]),
        ([10_239_900], "MiB", ["9.766"]),
        ([2**41], "GiB", ["2,048"]),
        ([2**60], "PiB", ["1,024"]),
        ([2**70], "PiB", ["1,048,576"]),
    ],
)
def test_a_column_of_bytes_has_one_unit_and_four_digits(counts: list[int], unit: str, texts: list[str]) -> None:
    assert common_unit(counts) == unit
    assert [in_unit(count, unit) for count in counts] == texts


@pytest.mark.parametrize("count", [9.9994, 9.9996, 99.994, 99.996, 999.94, 999.96, 9_999.4])
def test_a_byte_count_is_rounded_before_its_digits_are_counted(count: float) -> None:
    assert len(in_unit(count * 1024, "KiB")) == 5


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "row", "1 row"),
        (0, "row", "0 rows"),
        (2, "directory", "2 directories"),
        (1, "directory", "1 directory"),
        (3, "day", "3 days"),
        (2, "process", "2 processes"),
        (1200, "micro-batch", "1,200 micro-batches"),
    ],
)
def test_a_number_of_things_has_its_plural(number: int, noun: str, text: str) -> None:
    assert count(number, noun) == text


@pytest.mark.parametrize(("measured", "text"), [(99_999.0, "+0.0 %"), (100_001.0, "+0.0 %"), (3e6, "+2,900.0 %")])
def test_no_percentage_is_a_negative_zero(measured: float, text: str) -> None:
    assert percent_off(measured, 1e5, 1) == text


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_command_is_broken_so_that_a_shell_reads_it_as_one(width: int) -> None:
    line = "Again: samestep run torch:fsdp --out 'my runs/a b' --steps 5 --note \"it's\" --parity --model a\\ b.py"
    found = wrap_command(line, width)
    assert shlex.split(found.replace("\\\n", "")) == shlex.split(line)
    assert all(len(each) <= max(width, 24) for each in found.splitlines())
    assert "--steps 5" in found and "--out 'my runs/a b'" in found


def test_a_column_that_is_empty_in_every_row_is_left_out_at_any_width() -> None:
    empty, detail = Column("empty", lambda pair: ""), Column("more", lambda pair: str(pair[1]), is_detail=True)
    none = Column("none", lambda pair: "", is_detail=True)
    name = COLUMNS[0]
    assert fit([name, empty, none, COLUMNS[1]], [("a", 1), ("b", 2)], None) == [name, COLUMNS[1]]
    assert fit([name, empty, detail], [("a", 1)], None) == [name, empty, detail]  # the detail continues its cell


@pytest.mark.parametrize(
    ("size", "text"),
    [(64.92e9, "64.9 GB"), (216_900, "217 kB"), (999, "999 B"), (1e9, "1 GB"), (1e6, "1 MB"), (2.5e15, "2,500 TB")],
)
def test_memory_of_a_device_has_the_decimal_unit_that_fits(size: float, text: str) -> None:
    assert decimal_size(size) == text


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(0.12345, 0, "12 %"), (0.12345, 1, "12.3 %"), (0.0, 0, "0 %"), (0.004, 0, "less than 1 %"), (0.004, 1, "0.4 %")],
)
def test_a_share_in_percent_is_not_rounded_to_zero(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text

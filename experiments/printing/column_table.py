"""Tables of rows by columns: which columns fit the screen, their contents, and their meanings."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from samestep.experiments.printing.text import bullets, github, least_width, paragraphs, screen_width

Row = TypeVar("Row")


@dataclasses.dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table, or a detail after another column's value.

    Attributes:
        header: Its header, with its unit.
        value: Its text in a row.
        meaning: A clause that explains it; "" if the header does.
        drop_priority: In a table that is too wide, columns with the largest number are left out first; those with 0 stay.
        is_detail: Whether it continues the cell of the column before it; its header is then only a name.
    """

    header: str
    value: Callable[[Row], str]
    meaning: str = ""
    drop_priority: int = 0
    is_detail: bool = False


def fit(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int | None) -> list[Column[Row]]:
    """Leaves out columns that are empty in every row, and then others until the table fits.

    Args:
        columns: The columns, in order.
        rows: The rows of the table.
        width: The width in characters; None only leaves out empty columns.
    """
    shown = filled(columns, rows)
    while width is not None and least_width(*cells(shown, rows)) > width and any(each.drop_priority for each in shown):
        last = max(each.drop_priority for each in shown)
        shown = [each for each in shown if each.drop_priority < last]
    return shown


def filled(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> list[Column[Row]]:
    """Returns the columns in which some row has a value. A column stays if a detail with values follows, which shares its cell.

    Args:
        columns: The columns, in order.
        rows: The rows of the table.
    """
    kept: list[Column[Row]] = []
    for column in reversed(columns):
        is_continued = bool(kept) and kept[-1].is_detail and not column.is_detail
        if is_continued or any(map(column.value, rows)):
            kept.append(column)
    return kept[::-1]


def joined(columns: Sequence[Column[Row]]) -> list[Column[Row]]:
    """Joins each column with the details after it."""
    whole: list[Column[Row]] = []
    for column in columns:
        whole = [*whole[:-1], _join(whole[-1], column)] if column.is_detail else [*whole, column]
    return whole


def _join(column: Column[Row], detail: Column[Row]) -> Column[Row]:
    return Column(
        f"{column.header} {detail.header}",
        lambda row: " ".join(filter(None, (column.value(row), detail.value(row)))),
        " ".join(filter(None, (column.meaning, detail.meaning))),
    )


def cells(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Returns the headers of a table, without those of details, and the cells of its rows.

    Args:
        columns: The columns, in order.
        rows: The rows of the table.
    """
    whole = joined(columns)
    return [each.header for each in columns if not each.is_detail], [
        [each.value(row) for each in whole] for row in rows
    ]


def table(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int | None = None) -> str:
    """Returns the table of as many of the columns as fit, in GitHub's format.

    Args:
        columns: The columns, in order.
        rows: The rows of the table.
        width: The width in characters; None leaves nothing out, and wraps nothing.
    """
    return github(*cells(fit(columns, rows, width), rows), width)


def meanings(columns: Sequence[Column[Row]]) -> list[str]:
    """Returns the meanings of the columns whose headers do not explain them, one line for each."""
    return [f"{column.header}: {column.meaning}" for column in columns if column.meaning]


def explained(columns: Sequence[Column[Row]], rows: Sequence[Row], more: Sequence[str] = ()) -> str:
    """Returns the table of as many of the columns as fit the screen, and their meanings below it.

    Args:
        columns: In their order.
        rows: The rows; without any there is no table.
        more: Further lines.
    """
    width = screen_width()
    shown = fit(columns, rows, width)
    return paragraphs(table(shown, rows, width) if rows else "", bullets([*meanings(joined(shown)), *more]))

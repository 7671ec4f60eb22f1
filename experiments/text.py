"""Tables and sizes as text."""

import math
from collections.abc import Sequence

from tabulate import tabulate


def github(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """A table in GitHub's format, every cell as it is; with a width, cells are wrapped until the table fits into it."""
    wrapped = None if width is None else _column_widths(headers, rows, width)
    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True, maxcolwidths=wrapped)


def _column_widths(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The widest columns cut down alike until all fit into a width; not into headers, nor into a word of the first."""
    least = [len(header) + 2 for header in headers]  # tabulate pads them
    least[0] = max(least[0], *(len(word) for row in rows for word in row[0].split()))
    natural = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths = least
    for most in range(max(natural), 0, -1):
        widths = [max(header, min(wanted, most)) for header, wanted in zip(least, natural, strict=True)]
        if sum(widths) + 3 * len(widths) + 1 <= width:
            break
    return widths


def size(count: float | None) -> str:
    """Bytes in the largest fitting unit; KiB is 1024. "" stands for bytes that nobody counted."""
    if count is None or abs(count) < 1024:
        return "" if count is None else f"{count:.0f} B"
    power = min(3, int(math.log(abs(count), 1024)))
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB')[power - 1]}"


def spell(number: float | None, form: str) -> str:
    """A number in a format; "" stands for one that was not measured."""
    return "" if number is None else format(number, form)

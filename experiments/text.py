"""Tables and sizes as text."""

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


def size(count: float) -> str:
    """Bytes in the largest fitting unit; KiB is 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError

"""Tables, sizes and sentences as text that fits the screen."""

import math
import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import TypeVar

Shared = TypeVar("Shared")
Thing = TypeVar("Thing")
PIPED_WIDTH = 120
"""The width of output to a file or another program, independent of the terminal."""
_LONG_NAME = 30
"""A name with more characters may be broken; shorter names and numbers stay whole."""
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
"""The units of bytes, each of which is 1024 times the one before."""


def screen_width() -> int:
    """Returns the number of characters of a line: from COLUMNS, or else the terminal's, or else `PIPED_WIDTH`."""
    return shutil.get_terminal_size((PIPED_WIDTH, 24)).columns


def github(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Returns a table in GitHub's format; with a width, cells are wrapped until the table fits into it.

    Args:
        headers: One header for each column.
        rows: One cell for each column.
        width: The width in characters; None wraps nothing.
    """
    import tabulate  # here: no --help has a table

    tabulate.MIN_PADDING = 0  # headers as narrow as their text
    most = _column_widths(headers, rows, width)
    wrapped = [["\n".join(_wrap(text, limit)) for text, limit in zip(row, most, strict=True)] for row in rows]
    return tabulate.tabulate(wrapped, headers=headers, tablefmt="github", disable_numparse=True)


def _parts(text: str) -> list[tuple[str, str]]:
    """Returns the parts between which a cell may be broken, each with the separator before it.

    An option of a strategy is one part. A long name, such as that of a layer or a file, may be broken after dots and slashes.
    """
    words = re.sub(r"\+(?=\w+=)", " +", text).split()
    names = [re.findall(r".+?[./](?=\w)|.+", word) if len(word) > _LONG_NAME else [word] for word in words]
    return [("" if number else " ", part) for name in names for number, part in enumerate(name)]


def _wrap(text: str, width: int) -> list[str]:
    """Wraps a cell; a part that is longer than the width stays whole."""
    if len(text) <= width:
        return [text]
    lines = [""]
    for gap, part in _parts(text):
        if lines[-1] and len(lines[-1] + gap + part) > width:
            lines.append(part)
        else:
            lines[-1] += f"{gap}{part}" if lines[-1] else part
    return lines


def least_width(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Returns the width of a table in which only the first column is wrapped, as far as possible.

    Args:
        headers: One header for each column.
        rows: One cell for each column.
    """
    others = [max(map(len, column)) for column in zip(headers, *rows, strict=True)][1:]
    return _table_width([_longest_part([headers[0], *(row[0] for row in rows)]), *others])


def _longest_part(texts: Iterable[str]) -> int:
    return max((len(part) for text in texts for _, part in _parts(text)), default=0)


def _table_width(widths: Sequence[int]) -> int:
    return sum(widths) + 3 * len(widths) + 1


def _column_widths(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """Returns the widths of columns that fit: the widest ones shrink equally, but not below their headers or longest parts."""
    columns = list(zip(headers, *rows, strict=True))
    natural = [max(map(len, column)) for column in columns]
    least = [max(len(column[0]), _longest_part(column[1:])) for column in columns]
    widths = natural
    for most in range(max(natural), 0, -1) if width is not None else ():
        widths = [max(word, min(wanted, most)) for word, wanted in zip(least, natural, strict=True)]
        if _table_width(widths) <= (width or 0):
            break
    return widths


# --- sentences and numbers --------------------------------------------------------------------------------------------


def fill(text: str, width: int | None = None, indent: str = "") -> str:
    """Wraps a sentence; words stay whole, and a number stays with its percent sign.

    Args:
        text: One paragraph.
        width: The width in characters; by default the screen's.
        indent: The beginning of every line but the first.
    """
    width = width or screen_width()
    glued = re.sub(r"(?<=\d) %", "\xa0%", text)  # textwrap breaks at ASCII spaces only
    lines = textwrap.fill(glued, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\xa0%", " %")


def paragraphs(*parts: str) -> str:
    """Returns paragraphs with an empty line between them; empty ones are left out."""
    return "\n\n".join(filter(None, parts))


def percent_off(measured: float, predicted: float, digits: int = 0) -> str:
    """Returns how far a number is from its prediction, in percent of the prediction, with a sign; zero is never "-0".

    Args:
        measured: The number.
        predicted: Its prediction; not zero.
        digits: The number of digits after the decimal point.
    """
    return f"{100 * (measured / predicted - 1):+z,.{digits}f} %"


def marked(name: object, is_emulated: object) -> str:
    """Returns the name of a row, with a mark if it is emulated.

    Args:
        name: The name, or a cell.
        is_emulated: Whether it is emulated, as a boolean or as the text of the emulation.
    """
    return f"{name}{' (emulated)' if is_emulated else ''}"


def explain_emulation(strategy: str, emulation: str) -> str:
    """Returns a line on what runs in place of a strategy that is marked as emulated.

    Args:
        strategy: The name of the strategy.
        emulation: The text of the catalogue.
    """
    return f"{strategy} is emulated: {emulation.removeprefix('emulated: ')}"


def sharing(pairs: Iterable[tuple[Shared, Thing]]) -> dict[Shared, list[Thing]]:
    """Groups things by what they have in common.

    Args:
        pairs: The common property of each thing, and the thing.
    """
    found: dict[Shared, list[Thing]] = {}
    for shared, thing in pairs:
        found.setdefault(shared, []).append(thing)
    return found


def bullets(lines: Iterable[str], width: int | None = None) -> str:
    """Returns a list, its lines wrapped.

    Args:
        lines: The items.
        width: The width in characters; by default the screen's.
    """
    return "\n".join(fill(f"* {line}", width, "  ") for line in lines)


def shape(sizes: Iterable[int]) -> str:
    """Returns the shape of an array for a table, as in [32,20], without a space at which a narrow cell would be broken."""
    return f"[{','.join(map(str, sizes))}]"


def size(count: float | None) -> str:
    """Returns bytes in the largest fitting unit, where a KiB is 1024 bytes; "" for bytes that were not counted."""
    if count is None or abs(count) < 1024:
        return "" if count is None else f"{count:.0f} B"
    power = min(len(UNITS) - 1, int(math.log(abs(count), 1024)))
    return f"{count / 1024**power:.1f} {UNITS[power]}"


def decimal_size(count: float) -> str:
    """Returns bytes in the largest fitting decimal unit, as vendors state the memory of a device: 64.9 GB, 539 kB."""
    power = next((each for each in (4, 3, 2, 1) if count >= 1000**each), 0)
    return f"{plain_number(count / 1000**power)} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def common_unit(counts: Iterable[float]) -> str:
    """Returns the unit for all byte counts of a column: the smallest in which none needs more than four digits."""
    largest = max(counts, default=0)
    return next((unit for power, unit in enumerate(UNITS) if largest < 9999.5 * 1024**power), UNITS[-1])


def in_unit(count: float, unit: str) -> str:
    """Returns a byte count in a unit, with at most four digits; zero is "0".

    Args:
        count: The count of bytes.
        unit: One of `UNITS`; it is not written.
    """
    number = count / 1024 ** UNITS.index(unit)
    if unit == "B" or not number:
        return f"{number:,.0f}"
    decimals = next((n for n, least in enumerate((999.95, 99.995, 9.9995)) if number >= least), 3)
    return f"{number:,.{decimals}f}"


def short(number: float) -> str:
    """Returns a number rounded to three digits, as in 57.2k for 57,238."""
    rounded = float(f"{number:.3g}")
    scale, unit = next(((s, u) for s, u in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if abs(rounded) >= s), (1.0, ""))
    return f"{rounded / scale:#.3g}".rstrip(".") + unit


def plain_number(value: float) -> str:
    """Returns a number with at least three digits, without a power of ten unless it is tiny."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def large_number(count: float) -> str:
    """Returns a number with the word for its magnitude if it is large: 529.6 billion, 12.3 million, 502,240, 2.54."""
    names = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
    return next((f"{count / scale:.4g} {name}" for scale, name in names if count >= scale), plain_number(count))


def spell(number: float | None, form: str) -> str:
    """Returns a number in a format; "" for one that was not measured.

    Args:
        number: The number, or None.
        form: A format specification, as for `format`.
    """
    return "" if number is None else format(number, form)

"""Checks values of a record that somebody else may have written, and refuses kinds that no recorder writes."""

from typing import NoReturn

from samestep.common.errors import printable

MOST = 2**62
"""Of a whole number."""


def list_of(value: object) -> list[object]:
    """Returns a list."""
    return value if isinstance(value, list) else refuse(f"{value!r:.40} is not a list")


def shown(values: object) -> dict[str, str]:
    """Returns names and values with escaped control characters, which a terminal would obey when they are printed."""
    return {printable(name): printable(value) for name, value in dict(values).items()}  # type: ignore[call-overload]


def words_of(values: object) -> tuple[str, ...]:
    """Returns a list of texts."""
    for each in (words := values if isinstance(values, list) else list_of(values)):
        if not isinstance(each, str):
            refuse(f"{each!r:.40} is not text")
    return tuple(words)  # pyrefly: ignore[bad-return]  # all are text


def whole_of(value: object, least: int = 0) -> int:
    """Returns a whole number.

    Args:
        value: The number.
        least: The smallest valid number.
    """
    return value if type(value) is int and least <= value <= MOST else refuse(f"{value!r:.40} is no such number")


def number_of(value: object) -> float:
    """Returns a number."""
    return float(value) if type(value) in (int, float) else refuse(f"{value!r:.40} is not a number")  # type: ignore[arg-type]


def flag_of(value: object) -> bool:
    """Returns true or false."""
    return value if isinstance(value, bool) else refuse(f"{value!r:.40} is neither true nor false")


def refuse(what: str) -> NoReturn:
    """Refuses a value."""
    raise ValueError(what)

"""Checks values of a record that somebody else may have written, and refuses those that no recorder writes."""

from typing import NoReturn

from samestep.common.errors import printable

MOST = 2**62
"""The largest whole number that is accepted."""


def list_of(value: object) -> list[object]:
    """Returns a value that must be a list."""
    return value if isinstance(value, list) else refuse(f"{value!r:.40} is not a list")


def shown(values: object) -> dict[str, str]:
    """Returns names and values with control characters escaped, because a terminal would obey them when they are printed."""
    return {printable(name): printable(value) for name, value in dict(values).items()}  # type: ignore[call-overload]


def words_of(values: object) -> tuple[str, ...]:
    """Returns a value that must be a list of strings, as a tuple."""
    for each in (words := values if isinstance(values, list) else list_of(values)):
        if not isinstance(each, str):
            refuse(f"{each!r:.40} is not text")
    return tuple(words)  # pyrefly: ignore[bad-return]  # all are text


def whole_of(value: object, least: int = 0) -> int:
    """Returns a value that must be a whole number.

    Args:
        value: The value.
        least: The smallest valid number.
    """
    return value if type(value) is int and least <= value <= MOST else refuse(f"{value!r:.40} is not a valid number")


def number_of(value: object) -> float:
    """Returns a value that must be a number."""
    return float(value) if type(value) in (int, float) else refuse(f"{value!r:.40} is not a number")  # type: ignore[arg-type]


def flag_of(value: object) -> bool:
    """Returns a value that must be true or false."""
    return value if isinstance(value, bool) else refuse(f"{value!r:.40} is neither true nor false")


def refuse(what: str) -> NoReturn:
    """Refuses a value, with a message about what is wrong."""
    raise ValueError(what)

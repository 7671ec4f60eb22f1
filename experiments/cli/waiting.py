"""A line on a terminal, while a command that is silent otherwise works."""

import sys


def say_waiting(what: str) -> None:
    """Says on a terminal what takes a while; files and pipes get nothing.

    Args:
        what: What is being done, without an end.
    """
    if sys.stderr.isatty():
        print(f"{what} ...", file=sys.stderr, flush=True)

"""Highlights on a terminal with colours: verdicts, predictions that miss, what a strategy changes.

A line is coloured by its text, after it was written. So files, pipes and programs get the same text, without colours.
"""

import re
from pathlib import Path

_GREEN, _RED, _YELLOW, _DIM = "32", "1;31", "33", "2"
_CELL_ENDS = r"(?=[ ,][^|]*\|)"
RULES = (
    (rf"(?<=\| )(?:NO|not the same step|failed){_CELL_ENDS}", _RED),
    (r"\bNOT the same step$|\bdid not take (?:the same step|the \d+ steps|the oracle's)\b|^not the same\b", _RED),
    (rf"(?<=\| )yes{_CELL_ENDS}|(?<=  )same step$|^same\b(?=[:,])", _GREEN),
    (r"^cannot tell\b|(?<=[)B])!(?= *\|)|^\* ! ", _YELLOW),
    (r"(?<= )\([^()|]*\)(?=!? *\|)", _DIM),
    (r"^\+(?!\+\+ ).*", _GREEN),
    (r"^-(?!--? |-)[^|]*$", _RED),
)
"""Pattern in a line -> its style."""


_PLACE = re.compile(r"(?<=^Report: ).+|(?<=^Explorer: ).+|(?<=^Run: ).+|(?<=^Runs: ).+")


def _linked(found: re.Match[str]) -> str:
    """Returns the path of a file or folder as a link for terminals that support links; others show plain text."""
    path = Path(found[0])
    return f"\x1b]8;;{path.resolve().as_uri()}\x1b\\{found[0]}\x1b]8;;\x1b\\" if path.exists() else found[0]


def coloured(line: str) -> str:
    """Returns a line with the codes of its colours.

    Args:
        line: The line, without its end and with control characters already escaped.
    """
    line = _PLACE.sub(_linked, line)
    for pattern, code in RULES:
        line = re.sub(pattern, lambda found, code=code: f"\x1b[{code}m{found[0]}\x1b[0m" if found[0] else "", line)
    return line

"""Writes the output of commands: GitHub's tables for people, and JSON, CSV and JUnit's XML for programs."""

import argparse
import csv
import dataclasses
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal
from xml.etree import ElementTree

from samestep.common.cell import Cell
from samestep.common.flags import Scalar

Outcome = Literal["passed", "failure", "error", "skipped"]
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that an XML file cannot contain, such as the colours in a log."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One row as a test case.

    Attributes:
        name: The name of the row.
        outcome: "failure" for a wrong result, "error" for none, "skipped" if it was not tried or not judged.
        reason: Why it did not pass.
        seconds: The seconds that it took.
    """

    name: str
    outcome: Outcome = "passed"
    reason: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Document:
    """The output of a command, for every format.

    Attributes:
        name: The name of the command.
        text: Makes the text for people.
        record: The contents of the JSON, as dataclasses and plain values.
        rows: The columns of each row, as raw numbers with their units in the names; missing values stay empty.
        cases: One test case for each row.
    """

    name: str
    text: Callable[[], str]
    record: Mapping[str, object]
    rows: Sequence[Mapping[str, Scalar]]
    cases: Sequence[Case]


def add_format(parser: argparse.ArgumentParser) -> None:
    """Adds `--format` to a command."""
    text = f"one of {', '.join(FORMATS)}: github is for people, the others are for programs (default: github)"
    parser.add_argument("--format", choices=FORMATS, default="github", metavar="FORMAT", help=text)


def write(document: Document, name: str) -> str:
    """Writes a document.

    Args:
        document: The document.
        name: One of `FORMATS`.
    """
    return FORMATS[name](document)


def _plain(value: object) -> object:
    """Returns a value that JSON can hold; a number that is not finite becomes null."""
    if isinstance(value, Cell):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(document: Document) -> str:
    """Returns comma-separated values; an empty one was not measured."""
    file = io.StringIO()
    writer = csv.DictWriter(file, dict.fromkeys(itertools.chain(*document.rows)), lineterminator="\n")
    writer.writeheader()
    for row in document.rows:
        writer.writerow({n: str(value).lower() if isinstance(value, bool) else value for n, value in row.items()})
    return file.getvalue().rstrip("\n")


def _junit(document: Document) -> str:
    """Returns a suite with a test case for each row, as CI systems read it."""
    totals = {"tests": str(len(document.cases)), "time": f"{sum(case.seconds for case in document.cases):.3f}"}
    for outcome, plural in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        totals[plural] = str(sum(case.outcome == outcome for case in document.cases))
    whole = ElementTree.Element("testsuites", totals)
    suite = ElementTree.SubElement(whole, "testsuite", {"name": document.name, **totals})
    for case in document.cases:
        about = {"classname": document.name, "name": _NOT_XML.sub("?", case.name), "time": f"{case.seconds:.3f}"}
        element = ElementTree.SubElement(suite, "testcase", about)
        if case.outcome != "passed":
            reason = _NOT_XML.sub("?", case.reason)
            ElementTree.SubElement(element, case.outcome, {"message": reason}).text = reason
    ElementTree.indent(whole)
    return ElementTree.tostring(whole, encoding="us-ascii", xml_declaration=True).decode()


FORMATS: Mapping[str, Callable[[Document], str]] = {
    "github": lambda document: document.text(),
    "json": lambda document: json.dumps(_plain(document.record), indent=1, allow_nan=False),
    "csv": _csv,
    "junit": _junit,
}
"""Format -> the function that writes it."""

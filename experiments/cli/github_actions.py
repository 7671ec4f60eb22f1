"""What a GitHub workflow shows of a command: annotations on the commit, and the summary of the job.

References:
    Workflow commands of GitHub Actions: `::error title=...::...` on a line of its own, `%`, line ends, and in a title `:` and
    `,` as hexadecimal codes; GITHUB_STEP_SUMMARY names a file that takes Markdown.
"""

import os
import sys
from pathlib import Path
from typing import Literal

from samestep.common.errors import printable
from samestep.common.files.writing import append
from samestep.experiments.printing.formats import Document

_MOST_ANNOTATIONS = 10
"""The most annotations of a step that GitHub shows."""


def is_in_workflow() -> bool:
    """Returns whether this process runs in a GitHub workflow."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotate(kind: Literal["error", "warning"], title: str, message: str) -> None:
    """Prints the line that GitHub shows as an annotation, on stderr.

    Args:
        kind: Its severity.
        title: Its title.
        message: Its text.
    """
    escaped = printable(message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))
    name = printable(title.replace("%", "%25").replace("\n", " ").replace(":", "%3A").replace(",", "%2C"))
    print(f"::{kind} title={name}::{escaped}", file=sys.stderr, flush=True)


def show(document: Document) -> None:
    """Annotates each row that did not pass, and appends the text for people to the summary of the job.

    Args:
        document: What a command prints.
    """
    if not is_in_workflow():
        return
    wrong = [case for case in document.cases if case.outcome in ("failure", "error")]
    for case in wrong[:_MOST_ANNOTATIONS]:
        row = f", {case.name}" if len(document.cases) > 1 else ""
        annotate("error", f"{document.name}{row}", case.reason)
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            append(Path(path), f"### {document.name}\n\n{document.text()}\n\n".encode())
        except OSError as error:
            annotate("warning", document.name, f"the summary of the job could not be written: {error}")

"""Writes docs/settled.md: what is asked, the command that answers, and what it printed."""

from collections.abc import Mapping
from pathlib import Path

from museum.page import link
from museum.piece import ROOT
from museum.settled.table import QUESTIONS, Answer, Question

PAGE: Path = ROOT / "docs" / "settled.md"
_ABOUT = """# Rounding or a bug?

In {count} threads of other projects, somebody asks whether two runs differ by rounding or by a bug. `samestep diff` measures what
rounding does to the very step in question, so nobody has to choose a tolerance. Below each question are a description of the two
runs, the command, and what it printed. The output is unedited, except that the paths of the records and the table of tensors are
left out. A verdict holds for these two runs only, and nothing here ran on a GPU.

The scripts are in [museum/settled](../museum/settled), and the commands are run in the root of the repository.
`python -m museum.settled` runs them all and writes this page. [rounding.md](rounding.md) explains the
verdicts.
"""


def render(shown: Mapping[Answer, str]) -> str:
    """Returns the page.

    Args:
        shown: What each command printed.
    """
    table = ["| Thread | What is asked | Verdict |", "| --- | --- | --- |"]
    table += [_row(question, shown) for question in QUESTIONS]
    parts = [_part(question, shown) for question in QUESTIONS]
    return "\n".join([_ABOUT.format(count=len(QUESTIONS)), *table, "", *parts])


def _row(question: Question, shown: Mapping[Answer, str]) -> str:
    said = "; ".join(_kind(shown[answer]) for answer in question.answers)
    return f"| {link(question.thread)} | {question.asked} | {said} |"


def _kind(printed: str) -> str:
    """Returns the verdict without its details: what stands before the colon."""
    return printed.splitlines()[0].partition(":")[0]


def _part(question: Question, shown: Mapping[Answer, str]) -> str:
    lines = [f"## {question.thread.partition('/')[2]}", "", question.asked, ""]
    for answer in question.answers:
        lines += [answer.runs, "", "```console", f"$ {answer.command}", shown[answer], "```", ""]
    return "\n".join(lines)

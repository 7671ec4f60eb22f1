"""The page of settled questions has what the table has, and the commands say what the table says."""

import re
from pathlib import Path

import pytest

from museum.settled.answering import Printed, run
from museum.settled.page import PAGE, render
from museum.settled.table import QUESTIONS, Answer
from tests.recording.records import ROOT, run_forked

ANSWERS = [answer for question in QUESTIONS for answer in question.answers]
BLOCK = re.compile(r"^```console\n\$ (.+)\n((?:.*\n)+?)```$", re.MULTILINE)


def blocks() -> dict[str, str]:
    """Command on the page -> what it printed."""
    return dict(BLOCK.findall(PAGE.read_text()))


def test_the_page_is_made_of_the_table() -> None:
    found = blocks()
    shown = {answer: found[answer.command].rstrip("\n") for answer in ANSWERS}
    assert len(found) == len(ANSWERS) and PAGE.read_text() == render(shown)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.command)
def test_the_page_says_what_the_table_says(answer: Answer) -> None:
    assert Printed(answer.exit_code, blocks()[answer.command], "").is_as_expected(answer)


def test_another_verdict_is_not_as_expected() -> None:
    answer = ANSWERS[0]
    assert Printed(answer.exit_code, f"{answer.said}\n\nA: here\n", "").is_as_expected(answer)
    assert not Printed(answer.exit_code, "not the same: step 0", "").is_as_expected(answer)
    assert not Printed(1, answer.said, "").is_as_expected(answer)


def test_where_records_are_and_tables_are_not_shown() -> None:
    text = "same:\n  2 steps\n\nA: /here\nB: /there\n\n| tensor |\n| ------ |\n\n* a note\n\nNext: a command\n"
    assert Printed(0, text, "").shown == "same:\n  2 steps\n\n* a note\n\nNext: a command"
    assert Printed(0, text, "").verdict == "same:\n  2 steps"


def test_at_least_six_threads_are_answered_and_each_script_answers_one() -> None:
    threads = {question.thread for question in QUESTIONS}
    assert len(threads) == len(QUESTIONS) >= 6 and all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", each) for each in threads)
    scripts = {path.stem for path in (ROOT / "museum" / "settled").glob("*.py")}
    assert {answer.script for answer in ANSWERS} == scripts - {"__main__", "answering", "page", "table"}


@pytest.mark.torch
@pytest.mark.timeout(200)
def test_the_cheapest_command_says_what_the_table_says() -> None:
    (answer,) = (each for each in ANSWERS if each.a.endswith("summed_loss"))
    script = ROOT / "tests" / "recording" / "run_forked.py"
    printed = run_forked("torch", [(str(script), [answer.a, answer.b], None, 1)])
    code, _, headline = printed.partition(" ")
    assert Printed(int(code), headline, "").is_as_expected(answer), headline


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.tf
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.command)
def test_a_command_says_what_the_table_says(answer: Answer, tmp_path: Path) -> None:
    printed = run(answer, tmp_path)
    assert printed.is_as_expected(answer), printed

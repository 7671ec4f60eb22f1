"""Odd inputs, given to the real command: no traceback, no hang, a documented exit code, nothing that a terminal obeys."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SEED = 22


def give(first: int, count: int, folder: Path, seconds: float) -> list[dict[str, str]]:
    """Gives odd inputs in a process of their own; returns what each command answered."""
    line = [sys.executable, "-m", "tests.odd_inputs", *map(str, (SEED, first, count)), str(folder)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=True)
    answers = [json.loads(answer) for answer in done.stdout.splitlines()]
    assert len(answers) == count
    return answers


def assert_answered(answers: list[dict[str, str]]) -> None:
    wrong = [{**answer, "arguments": " ".join(answer["arguments"])[:300]} for answer in answers if answer["wrong"]]
    assert wrong == []


def test_a_sample_of_odd_inputs_is_answered(tmp_path: Path) -> None:
    assert_answered(give(0, 88, tmp_path, 250))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(88, 748, 165))
def test_odd_inputs_are_answered(tmp_path: Path, first: int) -> None:
    assert_answered(give(first, 165, tmp_path, 290))

"""Colours on a terminal: verdicts stand out, what is printed elsewhere is the same text without them."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.experiments.cli.colours import coloured

SHOWN = [
    ("| torch:ddp | yes |  1.2k |", "yes", 32),
    ("| torch:ddp | yes, amplified | 1.2k |", "yes", 32),
    ("| torch:ddp | NO  | 1.2k |", "NO", "1;31"),
    ("| torch:dp  | not the same step |", "not the same step", "1;31"),
    ("torch:ddp did not take the same step: twice the gradient", "did not take the same step", "1;31"),
    ("  torch:ddp, clip_by_local_norm        NOT the same step", "NOT the same step", "1;31"),
    ("not the same: step 0, gradient, layer blocks.3.mlp", "not the same", "1;31"),
    ("same: 20 steps", "same", 32),
    ("cannot tell: step 3, gradient", "cannot tell", 33),
    ("| torch:tp | 499.6 (1.0)! |", "!", 33),
    ("| torch:tp | 499.6 (499.6) | 1 |", "(499.6)", 2),
    ("+    model = DistributedDataParallel(model)", "+    model = DistributedDataParallel(model)", 32),
    ("-    model = model", "-    model = model", "1;31"),
]
PLAIN = [
    "| strategy | same step | state KiB |",
    "|---|---|",
    "-----",
    "yes, all of it",
    "--- single.py",
    "+++ ddp.py",
    "samestep",
]


@pytest.mark.parametrize(("line", "word", "code"), SHOWN)
def test_what_stands_out_is_the_verdict(line: str, word: str, code: object) -> None:
    assert f"\x1b[{code}m{word}\x1b[0m" in coloured(line)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured(line)) == line


@pytest.mark.parametrize("line", PLAIN)
def test_what_is_no_verdict_stays_as_it_is(line: str) -> None:
    assert coloured(line) == line


def _difference(environment: dict[str, str], terminal: bool) -> str:
    line = [sys.executable, "-m", "samestep", "strategies", "torch:ddp"]
    if not terminal:
        return subprocess.run(line, env=os.environ | environment, capture_output=True, text=True, check=True).stdout
    master, end = pty.openpty()
    process = subprocess.Popen(line, env=os.environ | environment, stdout=end)
    os.close(end)
    told = b""
    while True:
        try:
            if not (piece := os.read(master, 65536)):
                break
        except OSError:  # Linux' way to say that the other end is closed
            break
        told += piece
    os.close(master)
    assert process.wait() == 0
    return told.decode()


def test_only_a_terminal_whose_user_wants_colours_gets_them() -> None:
    assert "\x1b[32m+" in _difference({"TERM": "xterm", "NO_COLOR": ""}, terminal=True)
    assert "\x1b" not in _difference({"TERM": "xterm", "NO_COLOR": "1"}, terminal=True)
    assert "\x1b" not in _difference({"TERM": "dumb", "NO_COLOR": ""}, terminal=True)
    assert "\x1b" not in _difference({"TERM": "xterm", "NO_COLOR": ""}, terminal=False)


def test_a_file_that_is_there_is_a_link(tmp_path: Path) -> None:
    page = tmp_path / "a report.html"
    page.touch()
    assert coloured(f"Report: {page}") == f"Report: \x1b]8;;{page.as_uri()}\x1b\\{page}\x1b]8;;\x1b\\"
    assert coloured(f"Report: {tmp_path / 'none.html'}") == f"Report: {tmp_path / 'none.html'}"

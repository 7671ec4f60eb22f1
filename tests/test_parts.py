"""The parts of `make test-slow` are, together, all that would run."""

import argparse
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts import Part

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("count", "total"), [(3887, 20), (7, 3), (3, 7), (20, 20), (0, 2)])
def test_parts_are_neighbours_and_no_test_is_left_out(count: int, total: int) -> None:
    tests = [object() for _ in range(count)]
    parts = [tests[Part(number, total).of(tests)] for number in range(1, total + 1)]
    assert list(itertools.chain(*parts)) == tests
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/20", "21/20", "3", "a/b", "1/0", "-1/2"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(f"{text} is no part: give 1/20 to 20/20")):
        Part.parse(text)


def test_a_part_is_taken_of_what_an_expression_has_chosen(tmp_path: Path) -> None:
    plugin = "from tests.parts import OnlyPart, Part\ndef pytest_configure(config):\n"
    (tmp_path / "conftest.py").write_text(f"{plugin}    config.pluginmanager.register(OnlyPart(Part(2, 2)))\n")
    tests = "".join(f"def test_{name}():\n    pass\n" for name in ("a1", "b1", "a2", "b2", "b3", "b4"))
    (tmp_path / "test_these.py").write_text(tests)
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-k", "b", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert re.findall(r"::test_(\w+)$", done.stdout, re.MULTILINE) == ["b3", "b4"], done.stdout + done.stderr

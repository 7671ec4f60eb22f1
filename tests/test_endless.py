"""A test that waits without an end after its time is over costs its own worker, and no other test."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLUGIN = """
from tests.endless import EndsEndlessTests

def pytest_configure(config):
    config.pluginmanager.register(EndsEndlessTests(config))
"""
TESTS = """
import subprocess

def test_endless():
    with subprocess.Popen(["sleep", "9"]):  # waits for it again when the first wait is interrupted
        subprocess.run(["sleep", "9"])

def test_after():
    pass
"""


def test_it_ends_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_these.py").write_text(TESTS)
    line = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-o", "timeout=1", "-p", "no:cacheprovider"]
    own = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=50, check=False)
    assert "crashed while running 'test_these.py::test_endless'" in done.stdout, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "in test_endless" in done.stderr, "where it waited"

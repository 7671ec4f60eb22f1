"""Silent bugs, re-enacted: each is another run than its healthy twin, is found where it is, and has its name."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from museum.reenacted.row import Reenacted
from museum.reenacted.table import REENACTED
from samestep.common.mistakes.table import MISTAKES
from tests.recording.records import ROOT, run_forked
from tests.sharing import made_once

pytestmark = [pytest.mark.torch, pytest.mark.timeout(500)]
FAST, SLOW = ([row for row in REENACTED if row.is_slow == is_slow] for is_slow in (False, True))


def reenact(factory: pytest.TempPathFactory, name: str, rows: Sequence[Reenacted]) -> dict[str, dict]:
    """What is said of each, all in one process."""

    def make(folder: Path) -> None:
        names = ["--json", *(row.name for row in rows)]
        printed = run_forked("torch", [(str(ROOT / "museum" / "reenacted" / "run.py"), names, None, 1)])
        folder.mkdir()
        (folder / "found.jsonl").write_text(printed)

    lines = (made_once(factory, name, make) / "found.jsonl").read_text().splitlines()
    return {found["name"]: found for found in map(json.loads, lines)}


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    return reenact(tmp_path_factory, "reenacted", FAST)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    return reenact(tmp_path_factory, "reenacted-slowly", SLOW)


def check(row: Reenacted, found: dict) -> None:
    assert found["kind"] in ("named", "unnamed"), found["headline"]
    assert found["where"] == row.where, found["headline"]
    assert found["causes"] == ([row.expected] if row.expected else []), found["headline"]


@pytest.mark.parametrize("row", FAST, ids=lambda row: row.name)
def test_it_is_found_and_named(row: Reenacted, fast: dict[str, dict]) -> None:
    check(row, fast[row.name])


@pytest.mark.slow
@pytest.mark.parametrize("row", SLOW, ids=lambda row: row.name)
def test_it_is_found_and_named_with_more_reruns(row: Reenacted, slow: dict[str, dict]) -> None:
    check(row, slow[row.name])


@pytest.mark.slow
def test_the_commands_that_are_shown_say_the_same(tmp_path: Path) -> None:
    (row,) = (row for row in REENACTED if row.name == "model_takes_no_count")
    sides = [" ".join((sys.executable, *row.command(is_wrong)[1:])) for is_wrong in (False, True)]
    line = [sys.executable, "-m", "samestep", "diff", *sides, "--format", "json"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 4, done.stderr
    assert [each["name"] for each in json.loads(done.stdout)["verdict"]["causes"]] == [row.expected]


def test_there_are_enough_and_no_two_are_alike() -> None:
    assert len(REENACTED) >= 55 and len({row.name for row in REENACTED}) == len(REENACTED)
    assert len({(row.thread, row.mechanism) for row in REENACTED}) == len(REENACTED)
    threads = [thread for row in REENACTED for thread in (row.thread, *row.also)]
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", thread) for thread in threads)
    assert {row.expected for row in REENACTED} - {None} <= {mistake.name for mistake in MISTAKES}
    assert sum(row.expected is not None for row in REENACTED) >= 0.7 * len(REENACTED)

"""A rerun that puts a file in the place of a folder, changes a mode or writes to a file of two names leaves all as it was."""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.put_back import keeping
from samestep.experiments.recording.start import record_command
from tests.recording.test_put_back import place, rerun  # noqa: F401

CHANGES = {
    "a folder becomes a file": "shutil.rmtree('out'); open('out', 'w').write('other')",
    "a folder becomes a link": "shutil.rmtree('out'); os.mkdir('new'); os.symlink('new', 'out'); open('out/1.pt', 'w')",
    "a file becomes a folder": "os.remove('best.pt'); os.mkdir('best.pt'); open('best.pt/new', 'w')",
    "a link becomes a folder": "os.remove('latest'); os.mkdir('latest'); open('latest/new', 'w')",
    "a folder gets another mode": "shutil.rmtree('out'); os.mkdir('out', 0o755)",
    "a file gets another mode": "os.chmod('best.pt', 0o600)",
    "the same is written": "open('best.pt', 'w').write('best.pt of the user')",
    "one name of two is written": "open('log.txt', 'w').write('other')",
    "both names are written": "open('log.txt', 'w').write('other'); open('second', 'w').write('another')",
    "one name is removed, the other written": "os.remove('log.txt'); open('second', 'w').write('other')",
    "what is Linux's": "open('/proc/self/oom_score_adj', 'w').write('0'); open('/proc/self/clear_refs', 'w').write('1')",
}


def states(place: Path) -> dict[str, object]:  # noqa: F811
    """What each path below a folder holds, and its mode and time."""
    found: dict[str, object] = {}
    for path in sorted(place.rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_dir():
            found[str(path)] = status.st_mode
        else:
            found[str(path)] = path.read_text(), status.st_mode, status.st_mtime_ns
    return found


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_gets_another_kind_mode_or_content_is_as_before(place: Path, change: str) -> None:  # noqa: F811
    (place / "second").hardlink_to(place / "log.txt")
    (place / "out").chmod(0o700)
    before = states(place)
    rerun(f"import os, shutil\n{change}", place)
    after = states(place)
    assert {path: after.get(path) for path in before} == before


def test_a_database_that_is_named_by_an_address_is_put_back(place: Path) -> None:  # noqa: F811
    with sqlite3.connect(place / "trials.db") as connection:
        connection.execute("create table t (loss)")
    before = (place / "trials.db").read_bytes()
    drops = "connection.execute('drop table t'); connection.commit()"
    rerun(f"import sqlite3; connection = sqlite3.connect('file:trials.db?mode=rw', uri=True); {drops}", place)
    assert (place / "trials.db").read_bytes() == before


def test_an_interrupt_while_files_are_put_back_leaves_no_unfinished_one(
    place: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, copy = states(place), shutil.copy2

    def interrupted(*paths: Path) -> None:
        copy(*paths)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copy2", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rerun("open('best.pt', 'w').write('other')", place)
    assert [*place.glob(".*")] == []
    rerun("pass", place)
    after = states(place)
    assert {path: after.get(path) for path in before} == before


def test_a_rerun_cannot_remove_the_copies(place: Path) -> None:  # noqa: F811
    before = states(place)
    (reruns := place / "record" / "reruns").mkdir(parents=True)
    program = "import shutil; shutil.rmtree('out'); shutil.rmtree('record')"
    with keeping(reruns, place, lambda said: None) as kept:
        options = RecordOptions(str(reruns / "out"), keep=str(kept))
        ended = record_command([sys.executable, "-c", program], options, subprocess.DEVNULL, place)
    assert ended.exit_code == 1 and "the copies of other files are there" in ended.notes[0]
    after = states(place)
    assert {path: after.get(path) for path in before} == before

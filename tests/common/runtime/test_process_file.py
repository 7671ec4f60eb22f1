"""The sign of life of a process can be read at any moment, and is written without waiting for the disk."""

import json
import os
import threading
from pathlib import Path

import pytest

from samestep.common.errors import WorkerFailed
from samestep.common.runtime.process_file import DONE, Life, ProcessFile, read_life

FILE = "process-rank-0.json"


def test_what_is_shorter_leaves_nothing_of_what_was_there(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"phase": "done", "losses": [0.5] * 1000}))
    ProcessFile(tmp_path, "rank-0", 0).enter("train", 7)
    assert json.loads((tmp_path / FILE).read_text())["phase"] == "train"
    assert read_life(tmp_path, "rank-0").step == 7


def test_of_many_steps_it_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"phase": DONE, "step": 7, "losses": [0.1234567890123456] * 100_000}))
    assert read_life(tmp_path, "rank-0").phase == DONE


def test_it_is_written_where_it_is(tmp_path: Path) -> None:
    file = ProcessFile(tmp_path, "rank-0", 0)
    file.enter("start")
    before = os.stat(tmp_path / FILE).st_ino
    file.enter("train")
    assert os.stat(tmp_path / FILE).st_ino == before  # a file that replaces another is flushed to the disk (ext4)


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    file = ProcessFile(tmp_path, "rank-0", 0)
    file.enter("train", 1)
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(1e-4):
            file.enter("first step" * 20, 10**6)
            file.enter("train", 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        lives = [read_life(tmp_path, "rank-0") for _ in range(300)]
    finally:
        ended.set()  # pytest waits for every thread before it ends
        writer.join()
    assert {(life.phase, life.step) for life in lives} <= {("first step" * 20, 10**6), ("train", 1)}


def test_half_a_file_is_read_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).write_text('{"phase": "tra')
    whole = '{"phase": "train", "step": 3}'
    monkeypatch.setattr("time.sleep", lambda seconds: (tmp_path / FILE).write_text(whole) and None)
    assert read_life(tmp_path, "rank-0").phase == "train"


@pytest.mark.parametrize("garbage", ["{", "[]", '{"step": null}'])
def test_what_is_no_sign_of_life(tmp_path: Path, garbage: str) -> None:
    (tmp_path / FILE).write_text(garbage)
    assert read_life(tmp_path, "rank-0") == Life()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / FILE).symlink_to("kept")
    with pytest.raises(WorkerFailed, match=r"process-rank-0\.json is not a plain file that samestep wrote"):
        ProcessFile(tmp_path, "rank-0", 0).enter("train")
    assert (tmp_path / "kept").read_text() == "kept"

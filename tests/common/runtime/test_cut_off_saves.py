"""A process is killed at any moment within a save: nothing that was saved is lost."""

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from samestep.common.files.removing import discard
from samestep.common.files.writing import open_directory
from samestep.common.runtime.checkpoints.committed import FOLDER, newest
from samestep.common.runtime.checkpoints.writing import begin_checkpoint

_MOST_SECONDS = 60.0
_SAVES = """
import sys
from pathlib import Path
import numpy as np
from samestep.common.program import TrainState
from samestep.common.runtime.checkpoints.committed import Commit
from samestep.common.runtime.checkpoints.writing import write_checkpoint

start, num_saves = map(int, sys.argv[2:4])
for step in range(start, start + num_saves):
    state = TrainState(step, {"w": np.full(2**18, float(step))}, {})
    write_checkpoint(Path(sys.argv[1]), state, Commit(step, 0, 1, "program", "losses"))
    print(step, flush=True)
"""


def saving(directory: Path, start: int, num_saves: int) -> list[str]:
    return [sys.executable, "-c", _SAVES, str(directory), str(start), str(num_saves)]


def kill_while_it_saves(directory: Path, start: int, late: float) -> int:
    """Kills what saves from a step on, within the third save; returns the last one that it told as saved."""
    with subprocess.Popen(saving(directory, start, 1000), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = [int(process.stdout.readline()) for _ in range(2)]
            part = directory / FOLDER / f"step-{told[-1] + 1:06d}.part"
            end = time.monotonic() + _MOST_SECONDS
            while not part.exists() and not part.with_suffix("").exists() and time.monotonic() < end:
                pass
            time.sleep(late)
        finally:
            process.kill()
        told += [int(line) for line in process.stdout]
        process.wait(_MOST_SECONDS)
    return told[-1]


@pytest.mark.timeout(300)
def test_what_was_saved_is_there_whenever_a_process_is_killed(tmp_path: Path) -> None:
    open_directory(tmp_path)
    draw, start = random.Random(0), 0
    for _ in range(6):
        told = kill_while_it_saves(tmp_path, start, draw.uniform(0, 0.02))
        found, damaged = newest(tmp_path, "program")
        assert found is not None and damaged == ()
        assert found.commit.step in (told, told + 1)
        assert np.array_equal(found.state().params["w"], np.full(2**18, float(found.commit.step)))
        start = found.commit.step + 1  # the step whose saving was cut off, if it was


def test_the_next_save_removes_what_a_killed_run_left_of_one(tmp_path: Path) -> None:
    open_directory(tmp_path)
    begin_checkpoint(tmp_path, 3)
    subprocess.run(saving(tmp_path, 9, 1), timeout=_MOST_SECONDS, check=True)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["step-000009"]


_DIES_AT = """
import os, sys
call, number = getattr(os, sys.argv[4]), int(sys.argv[5])

def last(*arguments, **options):
    global number
    made = call(*arguments, **options)
    if sys.argv[4] != "open" or arguments[1] & os.O_EXCL:
        number -= 1
        if number < 0:
            os._exit(9)
    return made

setattr(os, sys.argv[4], last)
"""
MADE = [("mkdir", 0), ("mkdir", 1), ("open", 0), ("open", 1), ("rename", 0)]
"""What a save makes: the folder of all, its own, two files, and its name."""


@pytest.mark.parametrize(("call", "number"), MADE)
def test_a_save_goes_on_where_one_was_killed_right_after_it_made_something(
    tmp_path: Path, call: str, number: int
) -> None:
    open_directory(directory := tmp_path / "run")
    process, code, *arguments = saving(directory, 3, 1)
    dies = [process, code, _DIES_AT + arguments[0], *arguments[1:], call, str(number)]
    assert subprocess.run(dies, timeout=_MOST_SECONDS, check=False).returncode == 9
    subprocess.run(saving(directory, 3, 1), timeout=_MOST_SECONDS, check=True)
    saved = {path.name for path in (directory / FOLDER).iterdir()}
    assert saved == ({"step-000003", "step-000003-2"} if call == "rename" else {"step-000003"})
    discard(directory)
    assert not directory.exists()

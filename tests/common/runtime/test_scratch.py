"""Folders for temporary files: those of killed commands are swept, and nobody else's is touched."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.processes.scratch import OWNER, PREFIX, make_scratch, sweep
from tests.children import NOBODY

ROOT = Path(__file__).parents[3]
HOME = "samestep.common.runtime.parent.processes.scratch"
MADE = f"from {HOME} import make_scratch; made = make_scratch(); print(made.name, flush=True); input()"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@contextlib.contextmanager
def a_killed_command(temporary: Path) -> Iterator[Path]:
    """The folder of a command that has just been killed, which its parent has not noticed yet."""
    with subprocess.Popen(
        [sys.executable, "-c", MADE],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        folder = Path(command.stdout.readline().strip())
        sweep(temporary)
        assert folder.exists(), "its process runs"
        command.kill()
        os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOWAIT)
        yield folder


def test_the_next_command_sweeps_what_a_killed_one_left(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("precious")
    with a_killed_command(temporary) as folder:
        (folder / "model").mkdir()
        (folder / "model" / "initial.npz").touch()
        (folder / "link").symlink_to(tmp_path / "outside")
        with Launcher():
            assert not folder.exists()
            (own,) = temporary.iterdir()
            assert own.name.startswith(PREFIX)
    assert list(temporary.iterdir()) == []
    assert (tmp_path / "outside" / "file").read_text() == "precious"


def owner_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / OWNER).read_text())


def rewrite(folder: Path, **fields: object) -> None:
    (folder / OWNER).write_text(json.dumps(owner_of(folder) | fields))


def through_a_link(folder: Path) -> None:
    rewrite(folder, pid=2**22 + 1)
    folder.rename(moved := folder.parent / "moved")
    folder.symlink_to(moved)


def named_by_a_link(folder: Path) -> None:
    rewrite(folder, pid=2**22 + 1)
    (folder / OWNER).rename(folder.parent / "owner")
    (folder / OWNER).symlink_to(folder.parent / "owner")


SPARED: dict[str, Callable[[Path], object]] = {
    "its process runs": lambda folder: None,
    "no owner": lambda folder: (folder / OWNER).unlink(),
    "another boot, or another container": lambda folder: rewrite(folder, pid=2**22 + 1, place=["another"]),
    "another user's": lambda folder: (rewrite(folder, pid=2**22 + 1), os.chown(folder, NOBODY, NOBODY)),
    "another user's file": lambda folder: (rewrite(folder, pid=2**22 + 1), os.chown(folder / OWNER, NOBODY, NOBODY)),
    "a link": through_a_link,
    "a link to an owner": named_by_a_link,
    "no JSON": lambda folder: (folder / OWNER).write_text("{"),
    "no object": lambda folder: (folder / OWNER).write_text("[]"),
    "deep": lambda folder: (folder / OWNER).write_text("[" * 4000),
    "long": lambda folder: rewrite(folder, pid=2**22 + 1, more="x" * 5000),
    "no process": lambda folder: rewrite(folder, pid="1"),
    "every process": lambda folder: rewrite(folder, pid=-1),
    "a pipe": lambda folder: ((folder / OWNER).unlink(), os.mkfifo(folder / OWNER)),
}


@pytest.mark.parametrize("why", SPARED)
def test_what_may_be_in_use_or_somebody_elses_stays(temporary: Path, why: str) -> None:
    if "another user's" in why and os.geteuid():
        pytest.skip("only root can give a file away")
    with make_scratch() as name:
        (Path(name) / "kept").write_text("mine")
        SPARED[why](Path(name))
        sweep(temporary)
        assert (Path(name) / "kept").read_text() == "mine"


def test_a_process_of_the_same_id_that_was_started_later_is_another_one(temporary: Path) -> None:
    with make_scratch() as name:
        rewrite(Path(name), started="1")
        sweep(temporary)
        assert not Path(name).exists()

"""Directories that the user may not read or write: each command says that, and not that they hold nothing."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import samestep
from samestep.common.errors import ConfigError
from samestep.common.files.access import check_there
from samestep.common.runtime.parent.attempts import check_unfinished
from samestep.common.runtime.worker.worker import _run_directory
from samestep.common.steps import joining
from samestep.experiments.cleaning.disk_usage import check_named, why_kept
from samestep.experiments.comparing.baseline import load_earlier
from samestep.experiments.comparing.stored import read_asked
from tests.children import NOBODY, become_nobody, in_child
from tests.experiments.comparisons import make_up

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be somebody else")
Does = Callable[[Path], object]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A comparison that nobody owns; its path is relative, since nobody may read the folders above it."""
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    make_up(monkeypatch, {})
    samestep.compare(["torch:ddp"], out="kept", batch_size=48)
    for each in (Path("kept"), *Path("kept").rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    return Path("kept")


def refused(does: Does, path: Path) -> object:
    """What nobody is told."""

    def told() -> object:
        become_nobody()
        try:
            return does(path)
        except ConfigError as error:
            return str(error)

    return in_child(told)


@pytest.mark.parametrize(
    "does",
    [
        check_there,
        check_unfinished,
        read_asked,
        load_earlier,
        joining.read_run,
        lambda path: _run_directory([str(path)]),
    ],
)
def test_what_cannot_be_read_is_not_said_to_be_empty(kept: Path, does: Does) -> None:
    os.chown(kept, 0, 0)
    kept.chmod(0o700)
    said = "cannot be read (Permission denied); ask its owner, or name another directory."
    assert refused(does, kept) == f"kept {said}"
    assert refused(does, kept / "torch-ddp") == f"kept/torch-ddp {said}"


def test_nothing_is_removed_where_something_cannot_be(kept: Path) -> None:
    (row := kept / "torch-ddp" / "1").chmod(0o500)
    told = refused(check_named, kept)
    assert told == "kept/torch-ddp/1 cannot be written (Permission denied); nothing was removed."
    assert refused(why_kept, row) == "that you may not write into"
    row.chmod(0o700)
    assert refused(lambda path: str(check_named(path)), kept) == "kept"

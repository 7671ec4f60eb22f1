"""The cache of the oracle's curves: what it evicts, and what it never does."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from samestep.common.files.writing import open_directory, replacing
from samestep.common.files.written import LIST
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.judging import reference_curves
from samestep.common.runtime.parent.judging.cache import evict, find_entries, hold
from samestep.common.runtime.start import initial_state
from samestep.common.steps.log import Log, Window

Kept = Callable[[str, int, float], Path]


@pytest.fixture(autouse=True)
def held_by_nobody() -> Iterator[None]:
    yield
    hold(Path("nowhere"))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Makes an entry of a size, last used so many seconds after the epoch."""

    def kept(name: str, size: int, used: float) -> Path:
        path = tmp_path / key(name)
        for folder in (path, path / "20"):
            open_directory(folder)
        for file, count in (("state.npz", size // 2), ("metrics.jsonl", size - size // 2)):
            with replacing(path / "20" / file) as written:
                written.write(b"x" * count)
        os.utime(path, (used, used))
        return path

    return kept


def key(name: str) -> str:
    """A name as the cache gives them, of one letter."""
    return name * 24


def left(folder: Path) -> list[str]:
    """The entries of a cache, by their letters."""
    return sorted(path.name[0] for path in folder.iterdir() if path.is_dir())


def test_the_least_recently_used_go_first_and_no_more_than_need_to(kept: Kept, tmp_path: Path) -> None:
    for name, size, used in (("b", 100, 2), ("a", 100, 1), ("d", 50, 4), ("c", 100, 3)):
        kept(name, size, used)
    assert evict(tmp_path, 350) == []
    assert [entry.path.name[0] for entry in evict(tmp_path, 249)] == ["a", "b"]
    assert left(tmp_path) == ["c", "d"]


def test_a_use_counts(kept: Kept, tmp_path: Path) -> None:
    first, _, _ = kept("a", 100, 1), kept("b", 100, 2), kept("c", 100, 3)
    assert hold(first)
    assert hold(tmp_path / key("c"))
    assert [entry.path.name[0] for entry in evict(tmp_path, 200)] == ["b"]


def test_what_is_in_use_stays_whatever_the_limit(kept: Kept, tmp_path: Path) -> None:
    kept("a", 100, 1)
    hold(kept("b", 100, 2))
    assert [entry.path.name[0] for entry in evict(tmp_path, 0)] == ["a"]
    hold(tmp_path / key("a"))  # lets go
    assert [entry.path.name[0] for entry in evict(tmp_path, 0)] == ["b"]
    assert left(tmp_path) == []


def test_what_another_process_uses_stays_until_that_ends(kept: Kept, tmp_path: Path) -> None:
    path = kept("a", 100, 1)
    home = "samestep.common.runtime.parent.judging.cache"
    lines = f"import pathlib; from {home} import hold; print(hold(pathlib.Path({str(path)!r})))"
    with subprocess.Popen(
        [sys.executable, "-c", f"{lines}; import sys; sys.stdout.flush(); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert evict(tmp_path, 0) == []
        other.communicate("\n", timeout=20)
    assert len(evict(tmp_path, 0)) == 1


def test_an_entry_that_is_gone_is_not_there(tmp_path: Path) -> None:
    assert not hold(tmp_path / "a")
    assert evict(tmp_path / "no-such-cache", 0) == []
    assert find_entries([tmp_path / "a"]) == []


def test_a_kept_curve_makes_room_but_stays_itself(kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_curves, "curves_directory", lambda: tmp_path)
    monkeypatch.setattr(reference_curves, "evict", functools.partial(evict, limit=100))
    asked = RunConfig("numpy", "oracle", "synthetic-mlp+width=8", steps=3, dtype="float64")
    run, launch = parse(asked), launch_of(asked)
    folder = reference_curves.curve_folder(run, launch, "0")
    kept("a", 200, 1)
    log = Log(None, (Window(3, 0.1, (1.0, 0.5, 0.25)),))
    reference_curves.keep_curve(reference_curves.Curve(log, initial_state(run, launch)), run, launch, folder)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [folder.name]
    assert {path.name for path in folder.iterdir()} == {"0.cut", "lock", LIST}
